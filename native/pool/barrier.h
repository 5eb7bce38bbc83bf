// A pair of barriers of which one costs nothing: Dekker's handshake between a thread that is often there and one
// that rarely comes (Dice et al., Asymmetric Dekker Synchronization, 2001; membarrier(2), Linux 4.14).
#pragma once

#include <atomic>

#include "pool/quick_flags.h"

namespace symalloc {

// True where `HeavyBarrier` makes up for the barrier that others leave out.
bool HasHeavyBarrier();

// Every thread of the process passes a full barrier before this returns.  Only where there is one.
void HeavyBarrier();

// A flag of one thread, and a door that others close before they look at it.
class Section {
 public:
  // Enters, and returns true, unless the door is closed.  `Leave` must follow.
  bool Enter(const QuickFlags& flags) {
    if (__builtin_expect(flags.Has(QuickFlags::kHeavy), 0)) {
      inside_.exchange(true, std::memory_order_seq_cst);
    } else {
      EnterLightly();
    }
    if (__builtin_expect(!flags.Has(QuickFlags::kClosed), 1)) return true;
    Leave();
    return false;
  }

  // The same, but only where no flag at all is set.
  bool EnterQuickly(const QuickFlags& flags) {
    EnterLightly();
    if (__builtin_expect(!flags.any(), 1)) return true;
    Leave();
    return false;
  }

  void Leave() { inside_.store(false, std::memory_order_release); }

  // For others, once the door is closed and, where there is one, the heavy barrier passed.
  void AwaitLeft() const;

 private:
  void EnterLightly() {
    inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  std::atomic<bool> inside_{false};
};

}  // namespace symalloc

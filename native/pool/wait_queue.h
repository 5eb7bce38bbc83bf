// Allocations that wait for memory.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <thread>

#include "pool/sessions.h"

namespace symalloc {

// How long an allocation may wait for memory.
struct Patience {
  int64_t ns = 0;
  bool until_closed = false;  // the pool's owner may end the wait
};

// One that waits, on the stack of its thread.
struct Waiter {
  using Clock = std::chrono::steady_clock;

  int64_t size;          // bytes that it takes of the pool at least
  int64_t nbytes;        // that it asks for
  const Charge* charge;  // nullptr: to no session
  bool until_closed;
  Clock::time_point begun, deadline;
  const Session* lacking = nullptr;  // whose budget it waits for; nullptr: for memory of the pool
  bool woken = false;                // it may try again
  bool ended = false;
  bool trying = false;  // what its own thread frees meanwhile is not news
  std::thread::id thread = std::this_thread::get_id();
  std::condition_variable wake{};
};

// In the order of their arrival.  All but `any` is guarded by the pool's mutex.
class WaitQueue {
 public:
  // Any thread may ask.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  void Add(Waiter* waiter);
  void Remove(const Waiter* waiter);

  // The first waiter in front of `waiter` that waits for something that an allocation with this charge takes;
  // nullptr: there is none.  `waiter` nullptr: of all, one that has waited for half its time: others that fit may
  // pass before.
  const Waiter* Ahead(const Waiter* waiter, const Charge* charge) const;

  // Wakes those that nobody is in front of and that `fits(waiter)` has room for, as far as is known.
  template <typename Fits>
  void Wake(Fits fits) {
    for (Waiter* each : waiters_) {
      bool itself = each->trying && each->thread == std::this_thread::get_id();
      if (!itself && !each->woken && Ahead(each, each->charge) == nullptr && fits(*each)) Notify(each);
      if (each->lacking == nullptr) return;  // all behind it wait for it
    }
  }

  // Wakes everyone.
  void WakeAll();

  // Ends the waits that the pool's owner may end.
  void End();

  // In a forked process, which has no other threads.
  void Forget();

 private:
  static void Notify(Waiter* waiter) {
    waiter->woken = true;
    waiter->wake.notify_one();
  }

  std::atomic<bool> any_{false};
  std::deque<Waiter*> waiters_;
};

}  // namespace symalloc

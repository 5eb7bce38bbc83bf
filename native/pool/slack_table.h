// What blocks have beyond what they asked for: memory that a thread freed serves a block that is a little smaller, whole.
// And which free blocks threads keep for that.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "pool/os_memory.h"
#include "pool/sizes.h"
#include "pool/system_limits.h"

namespace symalloc {

// The slack of the blocks of one range, found by their offset.  Only blocks of kLeast bytes and more have any, so that no
// two of them begin in one window of so many bytes.  A block's entry belongs to whoever holds the block, or to the holder
// of the pool's mutex once the caches are closed.
class SlackTable {
 public:
  static constexpr int64_t kLeast = 16 << 10;    // bytes of a block
  static constexpr int64_t kMost = 256 << 10;  // bytes of a block with its slack

  // Reserves addresses for a range of `capacity` bytes; false where there are none.
  bool Reserve(int64_t capacity) {
    nbytes_ = Needed(capacity);
    base_ = ReserveAddresses(nbytes_, SystemPage());
    return base_ != nullptr;
  }

  void Release() {
    if (base_ != nullptr) ReleaseAddresses(base_, nbytes_);
    base_ = nullptr;
  }

  // Lets blocks below `end` have slack; false where the system refuses.
  bool Reach(int64_t end) {
    int64_t needed = std::min(Needed(end), nbytes_);
    if (needed > writable_ && !MakeWritable(base_ + writable_, needed - writable_)) return false;
    writable_ = std::max(writable_, needed);
    return true;
  }

  // Notes a block of `size` bytes of which `slack` are beyond what was asked for, both multiples of kGrain.
  void Note(int64_t offset, int64_t size, int64_t slack) {
    uint32_t entry = Grains(size) << kSizeShift | Grains(slack) << kSlackShift | Start(offset);
    At(offset)->store(entry, std::memory_order_relaxed);
  }

  // Notes a free block of `size` bytes that a thread keeps.
  void Keep(int64_t offset, int64_t size) {
    At(offset)->store(Grains(size) << kSizeShift | kKept | Start(offset), std::memory_order_relaxed);
  }

  // What is known of a block of at least kLeast bytes.
  struct Known {
    int64_t slack;  // bytes
    bool kept;      // by a thread: it is free
  };
  Known Of(int64_t offset) const {
    uint32_t entry = At(offset)->load(std::memory_order_relaxed);
    if ((entry & kStartMask) != Start(offset)) return {0, false};
    return {Slack(entry), (entry & kKept) != 0};
  }

  void Forget(int64_t offset) { At(offset)->store(0, std::memory_order_relaxed); }

  // Calls visit(offset, nbytes) for the slack of each block, and then forgets it.
  template <typename Visit>
  void TakeAll(Visit visit) {
    for (int64_t window = 0; window < writable_ / static_cast<int64_t>(sizeof(uint32_t)); ++window) {
      int64_t at = window * kLeast;
      uint32_t entry = At(at)->load(std::memory_order_relaxed);
      if (entry == 0 || (entry & kKept) != 0) continue;
      int64_t end = at + (entry & kStartMask) * kGrain + (entry >> kSizeShift) * kGrain;
      visit(end - Slack(entry), Slack(entry));
      Forget(at);
    }
  }

 private:
  static constexpr int kStartBits = 8, kSlackShift = 9, kSizeShift = 18;
  static constexpr uint32_t kStartMask = (1 << kStartBits) - 1, kKept = 1 << kStartBits;
  static constexpr uint32_t kSlackMask = (1 << (kSizeShift - kSlackShift)) - 1;
  static_assert(kLeast == kGrain << kStartBits && kMost / kGrain < int64_t{1} << (32 - kSizeShift));

  static int64_t Needed(int64_t end) {
    return RoundUp(RoundUp(end, kLeast) / kLeast * static_cast<int64_t>(sizeof(uint32_t)), SystemPage());
  }
  static uint32_t Grains(int64_t nbytes) { return static_cast<uint32_t>(static_cast<uint64_t>(nbytes) / kGrain); }
  static uint32_t Start(int64_t offset) { return Grains(offset) & kStartMask; }
  static int64_t Slack(uint32_t entry) { return static_cast<int64_t>(entry >> kSlackShift & kSlackMask) * kGrain; }

  std::atomic<uint32_t>* At(int64_t offset) const {
    return reinterpret_cast<std::atomic<uint32_t>*>(base_) + static_cast<uint64_t>(offset) / kLeast;
  }

  char* base_ = nullptr;
  int64_t nbytes_ = 0, writable_ = 0;  // bytes of the table
};

}  // namespace symalloc

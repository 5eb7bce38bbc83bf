// The cache of one thread for one pool.
#pragma once

#include <atomic>
#include <cstdint>

#include "pool/barrier.h"
#include "pool/size_bins.h"
#include "pool/large_block_cache.h"
#include "pool/split_counter.h"

namespace symalloc {

// The bins and large blocks belong to their thread while it is inside `section`, else to whoever holds the pool's mutex:
// others than that thread close the door first.  The counts are written by their thread alone, and read by any.
struct ThreadCache {
  Section section;
  SizeBins bins[2];
  LargeBlockCache large_blocks[2];
  std::atomic<int64_t> allocs{0}, frees{0};
  SplitCounter live;  // bytes asked for; below 0 where it frees what others allocate

  // Bytes that wait in the bins and large-block caches.
  int64_t held() const { return bins[0].held() + bins[1].held() + large_blocks[0].size() + large_blocks[1].size(); }

  void CountAlloc(int64_t nbytes) {
    Increment(&allocs);
    live.Add(nbytes);
  }
  void CountFree(int64_t nbytes) {
    Increment(&frees);
    live.Remove(nbytes);
  }

 private:
  static void Increment(std::atomic<int64_t>* counter) {
    counter->store(counter->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
};

}  // namespace symalloc

// What one thread has of one pool.
#pragma once

#include <atomic>
#include <cstdint>

#include "barrier.h"
#include "bins.h"
#include "piece.h"
#include "turnover.h"

namespace symalloc {

// The bins and pieces belong to their thread while it is inside `section`, else to whoever holds the pool's mutex:
// others than that thread close the door first.  The counts are written by their thread alone, and read by any.
struct Local {
  Section section;
  Bins bins[2];
  Piece pieces[2];
  std::atomic<int64_t> allocs{0}, frees{0};
  Turnover live;  // bytes asked for; below 0 where it frees what others allocate

  // Bytes that wait in the bins and pieces.
  int64_t held() const { return bins[0].held() + bins[1].held() + pieces[0].size() + pieces[1].size(); }

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

// What one thread has of one pool.
#pragma once

#include <atomic>
#include <cstdint>

#include "barrier.h"
#include "bins.h"
#include "piece.h"

namespace symalloc {

// The bins and pieces belong to their thread while it is inside `section`, else to whoever holds the pool's mutex: others
// than that thread close the door first.  The counts are written by their thread alone, and read by any.
struct Local {
  Section section;
  Bins bins[2];
  Piece pieces[2];
  std::atomic<int64_t> allocs{0}, frees{0}, live{0};

  // Bytes that wait in the bins and pieces.
  int64_t held() const { return bins[0].held() + bins[1].held() + pieces[0].size() + pieces[1].size(); }

  void CountAlloc(int64_t nbytes) {
    Add(&allocs, 1);
    Add(&live, nbytes);
  }
  void CountFree(int64_t nbytes) {
    Add(&frees, 1);
    Add(&live, -nbytes);
  }

 private:
  static void Add(std::atomic<int64_t>* counter, int64_t value) {
    counter->store(counter->load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }
};

}  // namespace symalloc

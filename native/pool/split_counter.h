// A sum that one thread at a time changes, and any may read.
#pragma once

#include <atomic>
#include <cstdint>

namespace symalloc {

// Additions and removals are counted separately: one number would have to be stored and read again twice for each
// block that comes and goes, which takes longer than all the rest.
class SplitCounter {
 public:
  void Add(int64_t amount) { Raise(&in_, amount); }
  void Remove(int64_t amount) { Raise(&out_, amount); }

  // Too much rather than too little where another thread changes it meanwhile.
  int64_t left() const {
    uint64_t out = out_.load(std::memory_order_acquire);
    return static_cast<int64_t>(in_.load(std::memory_order_relaxed) - out);
  }

 private:
  static void Raise(std::atomic<uint64_t>* sum, int64_t amount) {
    sum->store(sum->load(std::memory_order_relaxed) + static_cast<uint64_t>(amount), std::memory_order_relaxed);
  }

  std::atomic<uint64_t> in_{0}, out_{0};  // they may wrap
};

}  // namespace symalloc

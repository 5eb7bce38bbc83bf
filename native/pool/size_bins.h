// Small free blocks of one thread, by exact size: symalloc/pool/core/thread_cache.py is the reference.
#pragma once

#include <array>
#include <cstdint>
#include <new>

#include "pool/rounding.h"
#include "pool/split_counter.h"

namespace symalloc {

constexpr int64_t kGrain = 64;              // sizes and offsets are multiples of it
constexpr int64_t kBinLargest = 64 << 10;   // bytes

// The bytes that a block takes.
inline int64_t Rounded(int64_t nbytes) { return nbytes > kGrain ? RoundUp(nbytes, kGrain) : kGrain; }

// The block freed last of each size is known by itself, so that a block that comes and goes is not touched; the
// others hold the pointer to the next one.
class SizeBins {
 public:
  void* Take(int64_t nbytes) {
    Bin& bin = bins_[nbytes / kGrain];
    void* block = bin.last;
    if (block != nullptr) {
      bin.last = nullptr;
    } else if (bin.others != nullptr) {
      block = bin.others;
      bin.others = bin.others->next;
    } else {
      return nullptr;
    }
    held_.Remove(nbytes);
    return block;
  }

  void Put(void* block, int64_t nbytes) {
    Bin& bin = bins_[nbytes / kGrain];
    if (bin.last != nullptr) bin.others = new (bin.last) Node{bin.others};
    bin.last = block;
    held_.Add(nbytes);
  }

  // Any thread may ask.
  int64_t held() const { return held_.left(); }

  // Calls release(block, nbytes) for every block and forgets it.
  template <typename Release>
  void Flush(Release release) {
    for (int64_t i = 1; held() > 0 && i < static_cast<int64_t>(bins_.size()); ++i) {
      while (void* block = Take(i * kGrain)) release(block, i * kGrain);
    }
  }

 private:
  struct Node {
    Node* next;
  };

  struct Bin {
    void* last = nullptr;
    Node* others = nullptr;
  };

  SplitCounter held_;  // bytes
  std::array<Bin, kBinLargest / kGrain + 1> bins_{};
};

}  // namespace symalloc

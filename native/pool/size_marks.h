// A set of sizes.
#pragma once

#include <array>
#include <cstdint>

#include "pool/sizes.h"

namespace symalloc {

// Multiples of kGrain from kGrain to kLargest bytes.  All zero, it is empty.
class SizeMarks {
 public:
  static constexpr int64_t kLargest = 256 << 10;  // bytes
  static constexpr int64_t kCount = kLargest / kGrain;
  static_assert(kCount == 64 * 64);

  void Mark(int64_t size) {
    int64_t at = Index(size);
    marks_[at >> 6] |= uint64_t{1} << (at & 63);
    words_ |= uint64_t{1} << (at >> 6);
  }
  void Unmark(int64_t size) {
    int64_t at = Index(size);
    uint64_t& bits = marks_[at >> 6];
    bits &= ~(uint64_t{1} << (at & 63));
    if (bits == 0) words_ &= ~(uint64_t{1} << (at >> 6));
  }

  // The largest size; 0: none.
  int64_t Largest() const {
    if (words_ == 0) return 0;
    int64_t word = 63 - __builtin_clzll(words_);
    return ((word << 6 | (63 - __builtin_clzll(marks_[word]))) + 1) * kGrain;
  }

  // The smallest size that is not below `size`, which is at least 1; 0: none.
  int64_t Next(int64_t size) const {
    if (size > kLargest) return 0;
    int64_t at = Index(size);
    int64_t word = at >> 6;
    uint64_t bits = marks_[word] & (~uint64_t{0} << (at & 63));
    if (bits == 0) {
      uint64_t words = word == 63 ? 0 : words_ & (~uint64_t{0} << (word + 1));
      if (words == 0) return 0;
      word = __builtin_ctzll(words);
      bits = marks_[word];
    }
    return ((word << 6 | __builtin_ctzll(bits)) + 1) * kGrain;
  }

  static int64_t Index(int64_t size) { return static_cast<int64_t>(static_cast<uint64_t>(size - 1) / kGrain); }

 private:
  uint64_t words_;                  // which words of `marks_` hold any
  std::array<uint64_t, 64> marks_;
};

}  // namespace symalloc

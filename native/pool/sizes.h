// Sizes of blocks.
#pragma once

#include <cstdint>

namespace symalloc {

constexpr int kGrainBits = 6;
constexpr int64_t kGrain = 1 << kGrainBits;  // block sizes and offsets are multiples of it
constexpr int64_t kBinLargest = 64 << 10;    // bytes

// The least multiple of `multiple`, a power of two, that is not below `value`.
inline int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) & ~(multiple - 1); }

// The bytes that a block takes.
inline int64_t Rounded(int64_t nbytes) { return nbytes > kGrain ? RoundUp(nbytes, kGrain) : kGrain; }

}  // namespace symalloc

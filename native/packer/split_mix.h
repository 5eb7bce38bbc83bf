// The generator SplitMix64 of Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014).
#pragma once

#include <cstddef>
#include <cstdint>

namespace symalloc::packer {

// Its finaliser.
inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return Mix(state_ += 0x9E3779B97F4A7C15u); }
  // From 0 to below 1.
  double Random() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // From 0 to below `count`.
  int32_t Below(size_t count) { return static_cast<int32_t>(((Next() >> 32) * count) >> 32); }

 private:
  uint64_t state_;
};

}  // namespace symalloc::packer

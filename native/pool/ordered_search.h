// Searching among ascending numbers.
#pragma once

#include <cstdint>

namespace symalloc {

// How many of `count` ascending keys are not above `value`.  No step depends on a branch: where a block comes to lie
// nobody foresees, and a branch that is foretold wrongly costs more than all that it could save.
inline int64_t CountNotAbove(const int64_t* keys, int64_t count, int64_t value) {
  const int64_t* base = keys;
  while (count > 0) {
    int64_t half = (count + 1) / 2;
    base += half & -static_cast<int64_t>(base[half - 1] <= value);
    count -= half;
  }
  return base - keys;
}

}  // namespace symalloc

#pragma once

#include <cstdint>

namespace symalloc {

// The least multiple of `multiple`, a power of two, that is not below `value`.
inline int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) & ~(multiple - 1); }

}  // namespace symalloc

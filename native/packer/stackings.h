// Packings and stackings for the search in symalloc/planner/stack.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "packer/problem.h"

namespace symalloc::packer {

// Offsets in bytes: each buffer of `order` in turn in the smallest gap between its neighbours that holds it, or,
// without `best_fit`, in the lowest.
std::vector<int64_t> PlaceInOrder(const std::vector<int32_t>& order, const std::vector<int64_t>& sizes,
                                  const Lists& neighbours, bool best_fit);

// What begins and what ends to live, at each position where something does.
struct Changes {
  Lists begins, ends;
};

// For each buffer those that it lies on directly, ascending, where all are piled up in `order`, bottom first: at some
// position both are live, and nothing that is comes between them.  What lies farther down is below one of them; there
// are at most three for each interval, whatever is live together.
std::vector<std::vector<int32_t>> RestingOn(const std::vector<int32_t>& order, const Changes& changes);

// The height of that pile at each of `points` points, in bytes.  `values` has a row of sizes for each kind.
std::vector<double> HeightsOf(const std::vector<int32_t>& order, const std::vector<std::vector<int32_t>>& below,
                              const std::vector<int32_t>& kinds, const std::vector<double>& values, size_t points);

}  // namespace symalloc::packer

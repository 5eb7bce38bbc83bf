// What symalloc/planner/exact/native.py calls through ctypes.  Nothing is thrown: kOutOfMemory says it.
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "search.h"

#define SYMALLOC_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using symalloc::packer::Lists;
using symalloc::packer::Problem;
using symalloc::packer::Rule;
using symalloc::packer::Search;

constexpr int32_t kOutOfMemory = -1;

}  // namespace

// Lists as in Lists: `*_starts` has one element more than there are lists.
struct PackerProblem {
  int64_t capacity;
  int32_t buffers;
  int32_t cliques;
  const int64_t* sizes;
  const int64_t* alignments;
  const int64_t* highest;
  const int32_t* clique_starts;
  const int32_t* clique_items;
  const int32_t* member_starts;
  const int32_t* member_items;
  const int32_t* neighbour_starts;
  const int32_t* neighbour_items;
};

// A search, which packer_destroy ends; null where there is no memory for it.
SYMALLOC_EXPORT Search* packer_create(const PackerProblem* given) try {
  const int32_t count = given->buffers;
  return new Search(Problem{
      given->capacity,
      {given->sizes, given->sizes + count},
      {given->alignments, given->alignments + count},
      {given->highest, given->highest + count},
      Lists(given->clique_starts, given->clique_items, count),
      Lists(given->member_starts, given->member_items, given->cliques),
      Lists(given->neighbour_starts, given->neighbour_items, count),
  });
} catch (const std::bad_alloc&) {
  return nullptr;
}

SYMALLOC_EXPORT void packer_destroy(Search* search) { delete search; }

// Begins an attempt with one priority for each buffer; 0, or kOutOfMemory.
SYMALLOC_EXPORT int32_t packer_begin(Search* search, const int32_t* priorities, int32_t rule, double share) try {
  const int32_t count = search->state().problem().count();
  search->Begin({priorities, priorities + count}, static_cast<Rule>(rule), share);
  return 0;
} catch (const std::bad_alloc&) {
  return kOutOfMemory;
}

// Goes on for at most `steps` steps; an Outcome, or kOutOfMemory.
SYMALLOC_EXPORT int32_t packer_go(Search* search, int64_t steps) try {
  return static_cast<int32_t>(search->Go(steps));
} catch (const std::bad_alloc&) {
  return kOutOfMemory;
}

SYMALLOC_EXPORT int64_t packer_steps(const Search* search) { return search->steps(); }

// Writes the lowest offset of each buffer, in units: the packing where one was found.
SYMALLOC_EXPORT void packer_offsets(const Search* search, int64_t* offsets) {
  const int32_t count = search->state().problem().count();
  for (int32_t i = 0; i < count; ++i) offsets[i] = search->state().lowest(i);
}

// Arenas joined two by two: symalloc/planner/buffers/merged_arenas.py is the reference, and says what is decided and
// why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "arenas/call_columns.h"

namespace symalloc::arenas {

// Where there are `many`, neighbours go first, at most `most_together` tensors in one, and each is joined with `reach`
// behind it.
struct MergeOptions {
  bool many;
  int64_t most_tried, reach, most_together, most_work, trial;
};

class Merging {
 public:
  // `sizes` has a row for each tensor, `spare` for each column what is left there: bytes at each of `width` bindings.
  Merging(const CallColumns& columns, Bytes sizes, Bytes spare, size_t width, const MergeOptions& options);

  // A group whose arena is of that height.
  void Add(const std::vector<int32_t>& members, Bytes height);

  // Joins groups, each with those behind it.
  std::vector<std::vector<int32_t>> Run();

 private:
  struct Group {
    Members members;
    Bytes height;
    Spans spans;
  };
  using Groups = std::vector<Group>;

  Groups Stretches(Groups groups);
  std::optional<Group> Joined(const std::vector<const Group*>& groups);
  bool Fits(const std::vector<const Group*>& groups, const Group& together) const;
  void Take(const std::vector<const Group*>& groups, const Group& together);
  Bytes Height(const Members& members) const;

  const CallColumns& columns_;
  const Bytes sizes_;
  Bytes spare_;
  const size_t width_;
  const MergeOptions options_;
  int64_t work_ = 0;
  Groups groups_;
};

}  // namespace symalloc::arenas

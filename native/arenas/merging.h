// Arenas joined two by two: symalloc/planner/buffers/merged_arenas.py is the reference, and says what is decided and
// why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "arenas/call_columns.h"
#include "arenas/call_timeline.h"

namespace symalloc::arenas {

// Where there are `many`, neighbours go first, at most `most_together` tensors in one, and each is joined with `reach`
// behind it.
struct MergeOptions {
  bool many;
  int64_t most_tried, reach, most_together, most_work, trial;
};

class Merging {
 public:
  // `spare` has a row for each column.
  Merging(const CallTimeline& memory, const Groups& groups, Bytes spare, const MergeOptions& options);

  // Joins groups, each with those behind it.
  Groups Run();

 private:
  struct Group {
    Members members;
    Bytes height;
    Spans spans;
  };

  std::vector<Group> Stretches(std::vector<Group> groups);
  std::optional<Group> Joined(const std::vector<const Group*>& groups);
  bool Fits(const std::vector<const Group*>& groups, const Group& together) const;
  void Take(const std::vector<const Group*>& groups, const Group& together);

  const CallTimeline& memory_;
  const CallColumns& columns_;
  Bytes spare_;
  const size_t width_;
  const MergeOptions options_;
  int64_t work_ = 0;
  std::vector<Group> groups_;
};

}  // namespace symalloc::arenas

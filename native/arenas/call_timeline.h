// The bytes that tensors and arenas take over time: symalloc/planner/buffers/call_timeline.py is the reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arenas/call_columns.h"

namespace symalloc::arenas {

using Groups = std::vector<std::vector<int32_t>>;

class CallTimeline {
 public:
  // `bytes` has a row for each tensor, for each of `width` bindings.  `exact`: no sum of them is rounded, whatever its
  // order.
  CallTimeline(const CallColumns& columns, Bytes bytes, size_t width, bool exact);

  const CallColumns& columns() const { return columns_; }
  size_t width() const { return width_; }
  size_t cells() const { return columns_.its().columns * width_; }
  bool exact() const { return exact_; }
  const double* bytes(int32_t i) const { return bytes_.data() + i * width_; }

  // The bytes of tensors at the columns [first, last), which are those at which they are live.
  Bytes Load(const std::vector<int32_t>& members, int32_t first, int32_t last) const;

  // The size of an arena of theirs: as much as is live at one column.
  Bytes Height(const std::vector<int32_t>& members) const;

  // What arenas take at each column; those `lent` are held all the while.
  Bytes Arenas(const Groups& groups, const std::vector<bool>& lent) const;

 private:
  struct Taken {
    const double* bytes;
    const Spans* held;
  };

  Bytes Sums(const std::vector<Taken>& all, int32_t first, int32_t last) const;

  const CallColumns& columns_;
  const Bytes bytes_;
  const size_t width_;
  const bool exact_;
};

}  // namespace symalloc::arenas

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

  // Fills `sums` with the bytes of tensors at the columns [first, last), which are those at which they are live.
  void Load(const std::vector<int32_t>& members, int32_t first, int32_t last, double* sums) const;

  // The size of an arena of theirs: as much as is live at one column.
  Bytes Height(const std::vector<int32_t>& members) const;

  // Fills `sums` with what arenas take at each column; those `lent` are held all the while.
  void Arenas(const Groups& groups, const std::vector<bool>& lent, double* sums) const;

  // Fills `most` with what they take at most on each path, whose columns end where those of the next one begin: the
  // path i has those from bounds[i].  Only where sums are exact.
  void Peaks(const Groups& groups, const std::vector<bool>& lent, const std::vector<int32_t>& bounds,
             double* most) const;

 private:
  struct Taken {
    const double* bytes;
    const Spans* held;
  };

  // What `all` points to stays where it is when this moves.
  struct TakenByArenas {
    std::vector<Bytes> heights;
    std::vector<Spans> held;
    std::vector<Taken> all;
  };

  TakenByArenas TakenBy(const Groups& groups, const std::vector<bool>& lent) const;
  std::vector<Taken> TakenBy(const std::vector<int32_t>& members) const;
  template <typename Visit>
  void Sweep(const std::vector<Taken>& all, int32_t first, int32_t last, Visit visit) const;
  void Raise(const double* bytes, double* most) const;
  void Sum(const std::vector<Taken>& all, int32_t first, int32_t last, double* sums) const;

  const CallColumns& columns_;
  const Bytes bytes_;
  const size_t width_;
  const bool exact_;
};

}  // namespace symalloc::arenas

// The columns of a call, and for which of them tensors and arenas are held: symalloc/planner/buffers/call_columns.py
// is the reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "packer/problem.h"

namespace symalloc::arenas {

using packer::Lists;

// The columns [begin, end) of one path.
struct Held {
  int32_t path, begin, end;

  friend bool operator==(const Held& a, const Held& b) {
    return a.path == b.path && a.begin == b.begin && a.end == b.end;
  }
};

using Spans = std::vector<Held>;
using Bytes = std::vector<double>;  // a row for each tensor or column, at each binding

// The columns that hold the spans of all, on whatever path.
Held BoundsOf(const std::vector<const Spans*>& all);

// Those of one path, null where it is not among them.
const Held* On(const Spans& spans, int32_t path);

inline bool Within(const Held* span, int32_t column) { return span && span->begin <= column && column < span->end; }

// The program points [begin, end).
struct Interval {
  int32_t begin, end;
};

// A tensor: the column and the program point of its allocation, the point behind which its size is known, the bytes
// of a constant size, and of a result at the least extents; and flags.
struct Tenant {
  static constexpr int64_t kKept = 1, kLoose = 2, kGrounded = 4, kFixed = 8;

  int64_t column, made, known, constant, least, flags;

  bool kept() const { return flags & kKept; }
  bool loose() const { return flags & kLoose; }
  bool grounded() const { return flags & kGrounded; }
  int64_t kind() const { return flags & (kGrounded | kFixed); }
};

// A block of an If: its BRANCH and its points [begin, end).
struct Block {
  int32_t branch, begin, end;

  friend bool operator==(const Block& a, const Block& b) { return a.branch == b.branch && a.begin == b.begin; }
};

// What CallColumns knows.  A function is `straight` that does not branch; only others have `chains`, the blocks around
// each tensor, the outermost first, and know the program points of the columns of `paths`.
struct Structure {
  bool straight, all_known, alike, late;
  int32_t columns;
  std::vector<Tenant> tenants;
  std::vector<Spans> held;
  std::vector<std::vector<Interval>> live;
  std::vector<std::vector<Block>> chains;
  struct Path {
    int32_t number, offset, end;  // its columns are [offset, end)
    std::vector<int32_t> sorted, latest;  // points of its columns, and the latest up to each
  };
  std::vector<Path> paths;
};

// What several tensors have in common that may share an arena.
struct Members {
  std::vector<int32_t> list;
  int32_t first;              // the one made first
  size_t depth;               // of the blocks around it, those around all of them
  int64_t known;              // the point behind which all sizes are known
  std::vector<int32_t> ends;  // the column up to which an arena is there: on each path, or one in a straight function
};

class CallColumns {
 public:
  explicit CallColumns(Structure structure);

  const Structure& its() const { return its_; }
  const Tenant& tenant(int32_t i) const { return its_.tenants[i]; }
  const Spans& held(int32_t i) const { return its_.held[i]; }

  // Whether that is a path, and not all of the text.
  bool IsPath(int32_t path) const;

  const Members& Alone(int32_t i) const { return alone_[i]; }
  Members Together(const std::vector<int32_t>& all) const;

  // Puts `others` behind those that are there.
  void Add(const Members& others, Members* members) const;

  // The columns for which an arena of theirs is there.
  Spans Reserved(const Members& members) const;

  // All columns of paths.
  Spans Always() const;

  // The same with one more, where an arena is there during `spans`.
  Spans Extended(const Spans& spans, const Members& members, int32_t i) const;

  // Whether all of them may share an arena.
  bool Possible(const Members& members) const;

  // The same for one more, where it is so for the others.
  bool MayJoin(const Members& members, int32_t i) const;

 private:
  Members With(Members members, int32_t i) const;
  int64_t Point(const Members& members) const;
  bool OfOneKind(const Members& members) const;
  bool KnownInTime(const Members& members) const;
  bool MeetsAny(int32_t i, const Members& members) const;
  int32_t End(const Structure::Path& path, int32_t i) const;

  const Structure its_;
  std::vector<Members> alone_;
};

}  // namespace symalloc::arenas

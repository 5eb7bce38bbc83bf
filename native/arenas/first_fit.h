// Tensors grouped one by one: symalloc/planner/buffers/first_fit.py is the reference, and says what is decided and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "arenas/call_columns.h"
#include "arenas/call_timeline.h"

namespace symalloc::arenas {

// Bytes that are 0 at first.  Pages that nobody writes to take no memory: many arenas are there for few columns.
class SparseBytes {
 public:
  explicit SparseBytes(size_t count) : bytes_(static_cast<double*>(std::calloc(count, sizeof(double)))) {
    if (count > 0 && bytes_ == nullptr) throw std::bad_alloc();
  }

  double* get() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(double* bytes) const { std::free(bytes); }
  };

  std::unique_ptr<double[], Free> bytes_;
};

// The `shares` of tensors in `scale`, what all take at each binding; and at each column the `room` that is left, and
// what is `spare` for arenas that lie in no result.
struct Left {
  Bytes shares, scale, room, spare;
};

// `counted`: tensors count as lying in no arena until they are entered.  With `spread`, one that would make an arena
// grow by all of its size has one of its own as long as there are fewer.
struct FitOptions {
  bool counted;
  size_t spread;
  int64_t most_tried, most_work, trial;
};

class FirstFit {
 public:
  FirstFit(const CallTimeline& memory, Left left, const FitOptions& options);

  // An arena that is there already; `open` to others.
  void Add(const std::vector<int32_t>& members, bool open);

  // Puts tensors into arenas, in turn; whether the limit is kept, with no more than `spread` arenas and little work.
  bool Enter(const std::vector<int32_t>& order);

  Groups Members() const;

 private:
  struct Group {
    arenas::Members members;
    bool kept, open;
    SparseBytes load;
    Bytes height;
    Spans spans;
    int32_t first;  // column at which it is held on one path
  };

  struct Joined {
    double growth;
    Bytes height;
    Spans spans;
  };

  bool Enter(int32_t i);
  void Hold(Group* group, Spans spans) const;
  void Load(Group* group, int32_t i) const;
  bool Alone(int32_t i);
  bool Full(const Group& group, int32_t i) const;
  bool Before(const Group& group, int32_t i) const;
  std::optional<Joined> Join(const Group& group, int32_t i, double less);
  bool Unchanged(const Group& group, const Joined& joined) const;
  void Change(const Group& group, int32_t i, const Joined& joined);
  template <typename Visit>
  bool Changed(const Group& group, int32_t i, const Joined& joined, Visit visit);

  const double* bytes(int32_t i) const { return memory_.bytes(i); }

  const CallTimeline& memory_;
  const CallColumns& columns_;
  Left left_;
  const FitOptions options_;
  const size_t width_;  // bindings
  bool fine_;
  int64_t work_ = 0;
  std::vector<Group> groups_;
};

}  // namespace symalloc::arenas

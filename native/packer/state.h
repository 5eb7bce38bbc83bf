// A partial packing, built from below, and what follows from it.
//
// Every packing can be pushed down until each buffer lies at the bottom or on top of another.  The search decides one
// buffer at a time: it lies at its lowest possible offset, or it does not, and then it lies on top of a neighbour that is
// still to be placed.  A buffer may be decided when nothing that is left fits below it.
//
// After Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning" (2023), whose
// canonical solutions, section totals and monotonic floors are special cases; the bound within a clique is that of one
// machine with release dates (Jackson 1955).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "packer/problem.h"

namespace symalloc::packer {

class State {
 public:
  static constexpr int64_t kAbsent = int64_t{1} << 62;  // above every offset

  explicit State(Problem problem);

  // Takes everything out; keeps `share` of the weights of failures.
  void Clear(double share);

  // What Undo needs to come back to here.
  size_t Mark() const { return trail_.size(); }
  void Undo(size_t mark);

  // Puts `buffer` at its lowest offset, everything left beside it above; false where nothing can follow.
  bool Place(int32_t buffer);
  // Keeps `buffer`, below which nothing else fits, off its lowest offset; false where nothing can follow.
  bool Exclude(int32_t buffer);
  // Whether nothing that is left fits below `buffer` at its lowest offset.
  bool CanBeDecided(int32_t buffer) const;
  // Raises lower bounds until nothing follows any more; false where no packing is left.
  bool Propagate();

  const Problem& problem() const { return problem_; }
  bool placed(int32_t buffer) const { return placed_[buffer] != 0; }
  int64_t lowest(int32_t buffer) const { return lowest_[buffer]; }
  int64_t end(int32_t buffer) const { return lowest_[buffer] + problem_.sizes[buffer]; }
  int64_t floor(int32_t clique) const { return floors_[clique]; }
  int64_t choices(int32_t clique) const { return choices_[clique]; }
  double weight(int32_t clique) const { return weights_[clique]; }

 private:
  // Assigns, and notes on the trail what was there.
  void Set(int64_t* slot, int64_t value);
  void Change(int32_t clique);
  void Change(Lists::List cliques);
  bool Raise(int32_t buffer, int64_t offset);
  bool RaiseSuspects();
  bool Bound(int32_t clique);
  bool Late(size_t cut);
  void Sort(int32_t clique);
  int64_t Support(int32_t buffer) const;
  bool Fail(int32_t clique);

  const Problem problem_;
  std::vector<int64_t> lowest_;  // per buffer
  std::vector<int64_t> placed_;
  std::vector<int64_t> left_;  // per clique, as the four below
  std::vector<int64_t> floors_;
  std::vector<int64_t> tops_;
  std::vector<int64_t> second_tops_;
  std::vector<int64_t> choices_;
  std::vector<double> weights_;  // how often each clique was the reason of a failure
  std::vector<std::pair<int64_t*, int64_t>> trail_;

  std::vector<std::vector<int32_t>> sorted_;  // per clique all its members, by lowest offset when last looked at
  std::vector<int32_t> open_;                 // of one clique, those left to place, by lowest offset
  std::vector<int32_t> changed_, batch_, suspects_;
  std::vector<char> is_changed_, is_suspect_;
};

}  // namespace symalloc::packer

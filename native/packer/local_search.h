// Local search over stackings: take some buffers out, put each back where the arena stays lowest.  Ruin and recreate
// (Schrimpf et al., Record Breaking Optimization Results Using the Ruin and Recreate Principle, 2000).  The height with
// a buffer put back follows from the longest paths below and above each of its neighbours, as in Taillard's search for
// job shops (1994): all places are judged in one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "packer/problem.h"
#include "packer/split_mix.h"

namespace symalloc::packer {

using Order = std::vector<int32_t>;    // buffers, bottom first
using Column = std::vector<double>;    // a number for each buffer, at one point
using Heights = std::vector<double>;   // one for each point, in multiples of the floor there

// Where each buffer ends when those of `order` are stacked; 0 for the others.
template <typename Iterator>
void Stack(Iterator begin, Iterator end, const Column& sizes, const Lists& neighbours, Column* ends) {
  ends->assign(sizes.size(), 0.0);
  for (; begin != end; ++begin) {
    double under = 0.0;
    for (int32_t j : neighbours[*begin]) under = (*ends)[j] > under ? (*ends)[j] : under;
    (*ends)[*begin] = under + sizes[*begin];
  }
}

struct Improved {
  Order order;
  int64_t steps;
  int64_t work;
};

class LocalSearch {
 public:
  // `columns` holds for each point the sizes of all buffers, in multiples of the floor there.  To stack all of
  // them at one point counts as `once`; work beyond `left` ends the search.
  LocalSearch(const Lists& neighbours, const std::vector<Column>& columns, uint64_t seed, int64_t once, double left);

  // An order at least as good as `order`: until the worst height is at most `target`, or for `steps` steps.
  Improved Improve(const Order& order, double target, int64_t steps);

 private:
  // A stacking at one point: where each buffer ends, measured from below and from above.
  struct Pile {
    const Column* sizes;
    Column low, high;
  };

  Heights HeightsOf(const Order& order);
  // Makes `order`, which has these heights, another one near it; gives its heights.
  Heights Neighbour(Order* order, const Heights& heights);
  size_t Point(const Heights& heights);
  std::vector<int32_t> Ruin(const Order& order, size_t point, double height);
  void Sort(std::vector<int32_t>* removed);
  void MakePiles(const Order& kept);
  // Puts `current` into `order` and the piles where it costs least.
  Heights Insert(Order* order, int32_t current);
  // The neighbours of `current` that are in `order`, bottom first; fills ranks_.
  Order Near(const Order& order, int32_t current);
  // The heights with `current` on the first 0, 1, 2, ... of `near`, and the others on it.
  std::vector<Heights> Options(const Order& near, int32_t current) const;
  size_t Cheapest(const std::vector<Heights>& options);
  template <typename Iterator>
  void Push(Column* ends, const Column& sizes, int32_t current, double under, Iterator begin, Iterator end);

  const Lists& neighbours_;
  const std::vector<Column>& columns_;
  SplitMix64 random_;
  const int64_t once_;
  const double left_;
  int64_t work_ = 0;
  std::vector<Pile> piles_;
  // for use within one function
  Column low_, high_, starts_;
  std::vector<int32_t> ranks_;  // in an order; -1 for those that are not in it
};

}  // namespace symalloc::packer

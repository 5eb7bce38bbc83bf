#include "packer/stackings.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace symalloc::packer {

namespace {

using Stretch = std::pair<int64_t, int64_t>;

int64_t BestPlace(int64_t size, const std::vector<Stretch>& taken) {
  int64_t least = -1, found = 0, top = 0;
  for (const auto& [begin, end] : taken) {
    if (begin - top >= size && (least < 0 || begin - top < least)) {
      least = begin - top;
      found = top;
    }
    top = std::max(top, end);
  }
  return least < 0 ? top : found;
}

int64_t LowestPlace(int64_t size, const std::vector<Stretch>& taken) {
  int64_t place = 0;
  for (const auto& [begin, end] : taken) {
    if (begin >= place + size) break;
    place = std::max(place, end);
  }
  return place;
}

}  // namespace

std::vector<int64_t> PlaceInOrder(const std::vector<int32_t>& order, const std::vector<int64_t>& sizes,
                                  const Lists& neighbours, bool best_fit) {
  std::vector<int64_t> offsets(sizes.size(), -1);
  std::vector<Stretch> taken;
  for (int32_t i : order) {
    taken.clear();
    for (int32_t j : neighbours[i]) {
      if (offsets[j] >= 0) taken.emplace_back(offsets[j], offsets[j] + sizes[j]);
    }
    std::sort(taken.begin(), taken.end());
    offsets[i] = best_fit ? BestPlace(sizes[i], taken) : LowestPlace(sizes[i], taken);
  }
  return offsets;
}

std::vector<std::vector<int32_t>> RestingOn(const std::vector<int32_t>& order, const Changes& changes) {
  std::vector<int32_t> rank(order.size()), active;
  for (size_t place = 0; place < order.size(); ++place) rank[order[place]] = static_cast<int32_t>(place);
  std::vector<std::vector<int32_t>> below(order.size());
  const auto place_of = [&](int32_t one) { return std::lower_bound(active.begin(), active.end(), one); };
  const auto note = [&](int32_t one) {
    const size_t place = place_of(one) - active.begin();
    for (size_t upper = std::max<size_t>(place, 1); upper < std::min(place + 2, active.size()); ++upper) {
      below[order[active[upper]]].push_back(order[active[upper - 1]]);
    }
  };
  for (int32_t change = 0; change < changes.begins.size(); ++change) {
    for (int32_t i : changes.ends[change]) active.erase(place_of(rank[i]));
    for (int32_t i : changes.begins[change]) active.insert(place_of(rank[i]), rank[i]);
    for (int32_t i : changes.begins[change]) note(rank[i]);
    for (int32_t i : changes.ends[change]) note(rank[i]);
  }
  for (std::vector<int32_t>& list : below) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return below;
}

std::vector<double> HeightsOf(const std::vector<int32_t>& order, const std::vector<std::vector<int32_t>>& below,
                              const std::vector<int32_t>& kinds, const std::vector<double>& values, size_t points) {
  std::vector<double> ends(order.size() * points), tops(points, 0.0), under(points);
  for (int32_t i : order) {
    under.assign(points, below[i].empty() ? 0.0 : -HUGE_VAL);
    for (int32_t j : below[i]) {
      const double* row = ends.data() + j * points;
      for (size_t point = 0; point < points; ++point) under[point] = std::max(under[point], row[point]);
    }
    const double* sizes = values.data() + kinds[i] * points;
    double* end = ends.data() + i * points;
    for (size_t point = 0; point < points; ++point) {
      end[point] = sizes[point] + under[point];
      tops[point] = std::max(tops[point], end[point]);
    }
  }
  return tops;
}

}  // namespace symalloc::packer

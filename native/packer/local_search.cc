#include "packer/local_search.h"

#include <algorithm>
#include <utility>

namespace symalloc::packer {

namespace {

constexpr double kClose = 1e-9;
constexpr size_t kMostRemoved = 7;
constexpr double kWarmth = 0.004;
constexpr double kWeightOfMean = 0.1;

double Largest(const std::vector<double>& numbers) {
  double largest = 0.0;
  for (double number : numbers) largest = std::max(largest, number);
  return largest;
}

double Cost(const Heights& heights) {
  double sum = 0.0;
  for (double height : heights) sum += height;
  return Largest(heights) + kWeightOfMean * sum / static_cast<double>(heights.size());
}

}  // namespace

LocalSearch::LocalSearch(const Lists& neighbours, const std::vector<Column>& columns, uint64_t seed, int64_t once,
                         double left)
    : neighbours_(neighbours), columns_(columns), random_(seed), once_(once), left_(left) {
  for (const Column& sizes : columns) piles_.push_back(Pile{&sizes, {}, {}});
}

Improved LocalSearch::Improve(const Order& order, double target, int64_t steps) {
  Order current = order, best = order;
  Heights heights = HeightsOf(order), lowest = heights;
  const auto points = static_cast<int64_t>(columns_.size());
  work_ = points * once_;
  for (int64_t step = 0; step < steps; ++step) {
    if (Largest(lowest) <= target || static_cast<double>(work_) > left_) return {best, step, work_};
    work_ += (2 * points + 2) * once_;
    Order trial = current;
    const Heights reached = Neighbour(&trial, heights);
    const double done = static_cast<double>(step) / static_cast<double>(steps);
    const double warmth = kWarmth * random_.Random() * (1.0 - done);
    const bool better = Cost(reached) < Cost(lowest) - kClose;
    if (better) {
      best = trial;
      lowest = reached;
    }
    if (Cost(reached) <= Cost(heights) + warmth) {
      current = std::move(trial);
      heights = reached;
    }
  }
  return {best, steps, work_};
}

Heights LocalSearch::HeightsOf(const Order& order) {
  Heights heights;
  for (const Column& sizes : columns_) {
    Stack(order.begin(), order.end(), sizes, neighbours_, &low_);
    heights.push_back(Largest(low_));
  }
  return heights;
}

Heights LocalSearch::Neighbour(Order* order, const Heights& heights) {
  const size_t point = Point(heights);
  std::vector<int32_t> removed = Ruin(*order, point, heights[point]);
  const Column& sizes = columns_[point];
  std::vector<double>& starts = low_;  // from Ruin
  for (size_t i = 0; i < starts.size(); ++i) starts[i] -= sizes[i];
  std::stable_sort(order->begin(), order->end(), [&](int32_t a, int32_t b) { return starts[a] < starts[b]; });
  order->erase(std::remove_if(order->begin(), order->end(),
                              [&](int32_t i) { return std::find(removed.begin(), removed.end(), i) != removed.end(); }),
               order->end());
  MakePiles(*order);
  Sort(&removed);
  Heights reached;
  for (int32_t current : removed) reached = Insert(order, current);
  return reached;
}

size_t LocalSearch::Point(const Heights& heights) {
  std::vector<double> sums;
  double sum = 0.0;
  for (double height : heights) sums.push_back(sum += std::max(height - 1.0, 0.0) + 1e-6);
  const double drawn = random_.Random() * sum;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (drawn < sums[i]) return i;
  }
  return sums.size() - 1;
}

std::vector<int32_t> LocalSearch::Ruin(const Order& order, size_t point, double height) {
  const Column& sizes = columns_[point];
  Stack(order.begin(), order.end(), sizes, neighbours_, &low_);
  Stack(order.rbegin(), order.rend(), sizes, neighbours_, &high_);
  std::vector<int32_t> critical;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (low_[i] + high_[i] - sizes[i] >= height - kClose * height) critical.push_back(static_cast<int32_t>(i));
  }
  std::vector<int32_t> removed{critical[random_.Below(critical.size())]};
  const Lists::List list = neighbours_[removed.front()];
  std::vector<int32_t> around(list.begin(), list.end());
  const size_t count = std::min<size_t>(random_.Below(kMostRemoved + 1), around.size());
  for (size_t place = 0; place < count; ++place) {
    std::swap(around[place], around[place + random_.Below(around.size() - place)]);
    removed.push_back(around[place]);
  }
  return removed;
}

// Large ones first, with some noise.
void LocalSearch::Sort(std::vector<int32_t>* removed) {
  const Column& sizes = columns_[random_.Below(columns_.size())];
  std::sort(removed->begin(), removed->end());
  std::vector<std::pair<double, int32_t>> keys;
  for (int32_t i : *removed) keys.emplace_back(-sizes[i] * (0.5 + random_.Random()), i);
  std::sort(keys.begin(), keys.end());
  for (size_t place = 0; place < keys.size(); ++place) (*removed)[place] = keys[place].second;
}

void LocalSearch::MakePiles(const Order& kept) {
  for (Pile& pile : piles_) {
    Stack(kept.begin(), kept.end(), *pile.sizes, neighbours_, &pile.low);
    Stack(kept.rbegin(), kept.rend(), *pile.sizes, neighbours_, &pile.high);
  }
}

Heights LocalSearch::Insert(Order* order, int32_t current) {
  const Order near = Near(*order, current);
  const std::vector<Heights> options = Options(near, current);
  const size_t place = Cheapest(options);
  const size_t at = place < near.size() ? ranks_[near[place]] : order->size();
  for (Pile& pile : piles_) {
    double under = 0.0, over = 0.0;
    for (size_t p = 0; p < place; ++p) under = std::max(under, pile.low[near[p]]);
    for (size_t p = place; p < near.size(); ++p) over = std::max(over, pile.high[near[p]]);
    Push(&pile.low, *pile.sizes, current, under, order->begin() + at, order->end());
    Push(&pile.high, *pile.sizes, current, over, order->rend() - at, order->rend());
  }
  order->insert(order->begin() + at, current);
  return options[place];
}

Order LocalSearch::Near(const Order& order, int32_t current) {
  ranks_.assign(neighbours_.size(), -1);
  for (size_t rank = 0; rank < order.size(); ++rank) ranks_[order[rank]] = static_cast<int32_t>(rank);
  Order near;
  for (int32_t j : neighbours_[current]) {
    if (ranks_[j] >= 0) near.push_back(j);
  }
  std::sort(near.begin(), near.end(), [&](int32_t a, int32_t b) { return ranks_[a] < ranks_[b]; });
  return near;
}

std::vector<Heights> LocalSearch::Options(const Order& near, int32_t current) const {
  std::vector<Heights> options(near.size() + 1, Heights(piles_.size()));
  for (size_t point = 0; point < piles_.size(); ++point) {
    const Pile& pile = piles_[point];
    double over = 0.0;
    for (size_t place = near.size();; --place) {
      options[place][point] = over;
      if (place == 0) break;
      over = std::max(over, pile.high[near[place - 1]]);
    }
    const double rest = Largest(pile.low), size = (*pile.sizes)[current];
    double under = 0.0;
    for (size_t place = 0; place <= near.size(); ++place) {
      double& height = options[place][point];
      height = std::max(rest, under + size + height);
      if (place < near.size()) under = std::max(under, pile.low[near[place]]);
    }
  }
  return options;
}

// The place of the least cost; of several one by chance.
size_t LocalSearch::Cheapest(const std::vector<Heights>& options) {
  std::vector<double> costs;
  for (const Heights& heights : options) costs.push_back(Cost(heights));
  const double least = *std::min_element(costs.begin(), costs.end()) + kClose;
  std::vector<size_t> places;
  for (size_t place = 0; place < costs.size(); ++place) {
    if (costs[place] <= least) places.push_back(place);
  }
  return places[random_.Below(places.size())];
}

// Puts `current` on what ends at `under`, and raises those from `begin` to `end` over it.
template <typename Iterator>
void LocalSearch::Push(Column* ends, const Column& sizes, int32_t current, double under, Iterator begin,
                       Iterator end) {
  (*ends)[current] = under + sizes[current];
  starts_.assign(sizes.size(), 0.0);
  for (int32_t j : neighbours_[current]) starts_[j] = (*ends)[current];
  work_ += static_cast<int64_t>(ends->size() / 4) + neighbours_[current].size();
  for (; begin != end; ++begin) {
    const int32_t i = *begin;
    const double raised = starts_[i] + sizes[i];
    if (raised <= (*ends)[i]) continue;
    (*ends)[i] = raised;
    work_ += neighbours_[i].size();
    for (int32_t j : neighbours_[i]) starts_[j] = std::max(starts_[j], raised);
  }
}

}  // namespace symalloc::packer

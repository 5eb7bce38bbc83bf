#include "packer/strips.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <unordered_set>
#include <utility>

#include "packer/split_mix.h"

namespace symalloc::packer {

namespace {

constexpr double kRounding = 0.5;

struct State {
  std::vector<double> loads, heights;     // of each strip: the bytes that are live in it, and the most of them
  std::vector<std::vector<double>> room;  // the least while just these strips, as bits, were held; none: never
  std::vector<std::vector<std::vector<double>>> idle;  // the same of each strip, while nothing lay in it
  std::vector<int32_t> lying;                          // buffers in each strip
  uint32_t opened = 0;                                 // the strips in which some lie
  std::vector<uint32_t> lessened;         // the sets whose room has become less since it was looked at
  std::vector<int8_t> choice;             // of each buffer so far
  double taken = 0;
  uint64_t hash = 0;  // of loads and heights
};

struct Choice {
  double taken, grown;
  size_t parent, strip;
};

class StripSearch {
 public:
  StripSearch(const StripProblem& problem, size_t most)
      : problem_(problem), most_(most), count_(problem.untils.size()), bindings_(problem.bindings) {
    auto first = std::make_unique<State>();
    first->loads.assign(count_ * bindings_, 0.0);
    first->heights = problem.heights;
    first->room.resize(size_t{1} << count_);
    first->idle.resize(count_);
    first->lying.resize(count_);
    KeepLast(first.get());
    states_.push_back(std::move(first));
    SplitMix64 random(0);
    for (size_t at = 0; at < 2 * count_ * bindings_; at++) factors_.push_back(random.Next() | 1);
    const size_t kinds = problem.sizes.size() / bindings_;
    for (size_t at = 0; at < count_ * kinds; at++) {
      const double* size = &problem.sizes[at % kinds * bindings_];
      uint64_t hash = 0;
      for (size_t b = 0; b < bindings_; b++) hash += Hash(size[b], at / kinds * bindings_ + b);
      load_hashes_.push_back(hash);
    }
  }

  std::vector<int32_t> Run() {
    const size_t buffers = problem_.begins.size(), columns = problem_.rooms.size() / bindings_;
    std::vector<std::vector<size_t>> ending(columns + 1);
    for (size_t i = 0; i < buffers; i++) ending[problem_.ends[i]].push_back(i);
    size_t next = 0;
    for (size_t column = buffers ? problem_.begins[0] : columns; column < columns && !states_.empty(); column++) {
      End(ending[column], column);
      for (; next < buffers && problem_.begins[next] == static_cast<int32_t>(column); next++) Begin(next);
      Hold(&problem_.rooms[column * bindings_]);
    }
    if (states_.empty()) return {};
    return {states_[0]->choice.begin(), states_[0]->choice.end()};
  }

 private:
  const double* SizeOf(size_t buffer) const { return &problem_.sizes[problem_.kinds[buffer] * bindings_]; }

  // The part that a number has in the hash of a state: the hash of a sum is the sum of the hashes.
  uint64_t Hash(double value, size_t at) const { return static_cast<uint64_t>(static_cast<int64_t>(value)) * factors_[at]; }

  uint64_t LoadHash(size_t buffer, size_t strip) const {
    const uint64_t end = static_cast<uint64_t>(problem_.ends[buffer]) * 0x9e3779b97f4a7c15;
    return load_hashes_[strip * (load_hashes_.size() / count_) + problem_.kinds[buffer]] * (end | 1);
  }

  // States in whose strips the same bytes end at the same columns are one.
  void End(const std::vector<size_t>& ended, size_t column) {
    if (ended.empty()) return;
    for (const std::unique_ptr<State>& state : states_) {
      for (size_t i : ended) {
        const int8_t strip = state->choice[i];
        double* load = &state->loads[strip * bindings_];
        for (size_t b = 0; b < bindings_; b++) load[b] -= SizeOf(i)[b];
        state->hash -= LoadHash(i, strip);
        if (--state->lying[strip] || (problem_.fixed[strip] && static_cast<int32_t>(column) < problem_.untils[strip])) continue;
        state->opened &= ~(uint32_t{1} << strip);
        state->idle[strip].assign(state->room.size(), {});
      }
    }
    std::unordered_set<uint64_t> seen;
    KeepIf([&](const State& state) { return seen.insert(state.hash ^ state.opened * 0xc2b2ae3d27d4eb4f).second; });
  }

  template <typename Kept>
  void KeepIf(const Kept& kept) {
    size_t left = 0;
    for (std::unique_ptr<State>& state : states_) {
      if (kept(*state)) std::swap(states_[left++], state);
    }
    Drop(left);
  }

  // What the strip that lasts longest may take once the others are gone is known from the beginning.
  void KeepLast(State* first) const {
    const auto most = std::max_element(problem_.untils.begin(), problem_.untils.end());
    const size_t last = most - problem_.untils.begin();
    int32_t begin = 0, end = 0;
    for (size_t k = 0; k < count_; k++) begin = k == last ? begin : std::max(begin, problem_.untils[k]);
    for (int32_t one : problem_.ends) end = std::max(end, one);
    for (int32_t column = begin; column < end; column++) {
      Lessen(&problem_.rooms[column * bindings_], &first->room[size_t{1} << last]);
    }
    first->lessened.push_back(uint32_t{1} << last);
  }

  // Memory of states that are gone serves others.
  void Drop(size_t left) {
    std::move(states_.begin() + left, states_.end(), std::back_inserter(spare_));
    states_.resize(left);
  }

  std::unique_ptr<State> Copy(const State& state) {
    if (spare_.empty()) return std::make_unique<State>(state);
    std::unique_ptr<State> copy = std::move(spare_.back());
    spare_.pop_back();
    *copy = state;
    return copy;
  }

  void Begin(size_t buffer) {
    choices_.clear();
    for (size_t parent = 0; parent < states_.size(); parent++) {
      for (size_t k = 0; k < count_; k++) {
        if (!(problem_.allowed[buffer] >> k & 1) || problem_.ends[buffer] > problem_.untils[k]) continue;
        const double grown = Grown(*states_[parent], k, SizeOf(buffer));
        if (grown >= 0) choices_.push_back({states_[parent]->taken + grown, grown, parent, k});
      }
    }
    const auto less = [](const Choice& one, const Choice& other) { return one.taken < other.taken; };
    std::stable_sort(choices_.begin(), choices_.end(), less);
    if (choices_.size() > most_) choices_.resize(most_);
    std::vector<size_t> left(states_.size());
    for (const Choice& choice : choices_) left[choice.parent]++;
    std::vector<std::unique_ptr<State>> following;
    following.reserve(choices_.size());
    for (const Choice& choice : choices_) {
      std::unique_ptr<State>& parent = states_[choice.parent];
      following.push_back(--left[choice.parent] ? Copy(*parent) : std::move(parent));
      Put(buffer, choice, following.back().get());
    }
    const auto gone = [](const std::unique_ptr<State>& state) { return state == nullptr; };
    states_.erase(std::remove_if(states_.begin(), states_.end(), gone), states_.end());
    Drop(0);
    states_ = std::move(following);
  }

  void Put(size_t buffer, const Choice& choice, State* state) const {
    state->taken = choice.taken;
    Open(state, choice.strip);
    state->choice.push_back(static_cast<int8_t>(choice.strip));
    state->hash += LoadHash(buffer, choice.strip);
    double* load = &state->loads[choice.strip * bindings_];
    double* height = &state->heights[choice.strip * bindings_];
    for (size_t b = 0; b < bindings_; b++) load[b] += SizeOf(buffer)[b];
    for (size_t b = 0; choice.grown > 0 && b < bindings_; b++) {
      const double most = std::max(height[b], load[b]);
      state->hash += Hash(most - height[b], (count_ + choice.strip) * bindings_ + b);
      height[b] = most;
    }
  }

  // A strip that was idle was held all the while.
  void Open(State* state, size_t strip) const {
    const uint32_t bit = uint32_t{1} << strip;
    for (uint32_t set = 0; set < state->idle[strip].size(); set++) {
      const std::vector<double>& room = state->idle[strip][set];
      if (!room.empty() && Lessen(room.data(), &state->room[set | bit])) state->lessened.push_back(set | bit);
    }
    state->idle[strip].clear();
    state->opened |= bit;
    state->lying[strip]++;
  }

  bool Lessen(const double* room, std::vector<double>* least) const {
    if (least->empty()) least->assign(bindings_, std::numeric_limits<double>::infinity());
    const bool less = !std::equal(room, room + bindings_, least->data(), std::greater_equal<double>());
    for (size_t b = 0; less && b < bindings_; b++) (*least)[b] = std::min((*least)[b], room[b]);
    return less;
  }

  // By how much more the strips of a state take where a buffer lies in one; below 0 where there is no room for that.
  double Grown(const State& state, size_t strip, const double* size) const {
    const double* load = &state.loads[strip * bindings_];
    const double* height = &state.heights[strip * bindings_];
    double* grown = grown_.data();
    const double least = problem_.fixed[strip] ? kRounding : 0.0;
    double total = 0;
    for (size_t b = 0; b < bindings_; b++) grown[b] = std::max(load[b] + size[b] - height[b], 0.0);
    const bool more = std::any_of(grown, grown + bindings_, [least](double one) { return one > least; });
    if (!more || problem_.fixed[strip]) return more ? -1 : 0;
    for (size_t b = 0; b < bindings_; b++) total += grown[b] * problem_.weights[b];
    for (uint32_t set = 0; set < state.room.size(); set++) {
      if ((set >> strip & 1) && !Fits(state, set, grown_)) return -1;
    }
    return total;
  }

  bool Fits(const State& state, uint32_t set, const std::vector<double>& grown) const {
    const double* room = state.room[set].data();
    if (state.room[set].empty()) return true;
    double* taken = taken_.data();
    std::copy(grown.begin(), grown.end(), taken);
    for (size_t k = 0; k < count_; k++) {
      if (!(set >> k & 1)) continue;
      const double* height = &state.heights[k * bindings_];
      for (size_t b = 0; b < bindings_; b++) taken[b] += height[b];
    }
    return std::equal(taken, taken + bindings_, room, [](double one, double most) { return one <= most + kRounding; });
  }

  // The states in which all that is held at a column, and was before, has room there.
  void Hold(const double* room) {
    KeepIf([&](State& state) {
      if (Lessen(room, &state.room[state.opened])) state.lessened.push_back(state.opened);
      for (std::vector<std::vector<double>>& idle : state.idle) {
        if (!idle.empty()) Lessen(room, &idle[state.opened]);
      }
      for (uint32_t set : state.lessened) {
        if (set && !Fits(state, set, nothing_)) return false;
      }
      state.lessened.clear();
      return true;
    });
  }

  const StripProblem& problem_;
  const size_t most_, count_, bindings_;
  std::vector<uint64_t> factors_, load_hashes_;
  std::vector<std::unique_ptr<State>> states_, spare_;
  std::vector<Choice> choices_;
  const std::vector<double> nothing_ = std::vector<double>(bindings_);
  mutable std::vector<double> grown_ = nothing_, taken_ = nothing_;
};

}  // namespace

std::vector<int32_t> DivideAmongStrips(const StripProblem& problem, size_t most) {
  return StripSearch(problem, most).Run();
}

}  // namespace symalloc::packer

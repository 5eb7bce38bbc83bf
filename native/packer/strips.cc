#include "packer/strips.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

namespace symalloc::packer {

namespace {

constexpr double kRounding = 0.5;

struct State {
  std::vector<double> loads, heights;     // of each strip: the bytes that are live in it, and the most of them
  std::vector<std::vector<double>> room;  // the least while just these strips, as bits, were held; none: never
  std::vector<std::vector<std::vector<double>>> idle;  // the same of each strip, while nothing lay in it
  std::vector<int32_t> lying;                          // buffers in each strip
  uint32_t opened = 0, used = 0;                       // the strips in which some lie, and those in which some did
  std::vector<int8_t> choice;             // of each buffer so far
  double taken = 0;
};

struct Choice {
  double taken;
  size_t parent, strip;
};

class StripSearch {
 public:
  StripSearch(const StripProblem& problem, size_t most)
      : problem_(problem), most_(most), count_(problem.untils.size()), bindings_(problem.bindings) {
    State first;
    first.loads.assign(count_ * bindings_, 0.0);
    first.heights = problem.heights;
    first.room.resize(size_t{1} << count_);
    first.idle.resize(count_);
    first.lying.resize(count_);
    states_.push_back(std::move(first));
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
    return {states_[0].choice.begin(), states_[0].choice.end()};
  }

 private:
  const double* SizeOf(size_t buffer) const { return &problem_.sizes[problem_.kinds[buffer] * bindings_]; }

  // States that have all the same from here on are one.
  void End(const std::vector<size_t>& ended, size_t column) {
    if (ended.empty()) return;
    for (State& state : states_) {
      for (size_t i : ended) {
        const int8_t strip = state.choice[i];
        double* load = &state.loads[strip * bindings_];
        for (size_t b = 0; b < bindings_; b++) load[b] -= SizeOf(i)[b];
        if (--state.lying[strip] || (problem_.fixed[strip] && static_cast<int32_t>(column) < problem_.untils[strip])) continue;
        state.opened &= ~(uint32_t{1} << strip);
        state.idle[strip].assign(state.room.size(), {});
      }
    }
    std::unordered_set<uint64_t> seen;
    const auto again = [&](const State& state) { return !seen.insert(Hash(state)).second; };
    states_.erase(std::remove_if(states_.begin(), states_.end(), again), states_.end());
  }

  uint64_t Hash(const State& state) const {
    uint64_t loads = state.opened, heights = 0;
    const auto add = [](uint64_t* found, double value) {
      *found = (*found ^ static_cast<uint64_t>(static_cast<int64_t>(value))) * 0x9e3779b97f4a7c15;
      *found ^= *found >> 29;
    };
    for (size_t at = 0; at < state.loads.size(); at++) {  // two chains, neither of which waits for the other
      add(&loads, state.loads[at]);
      add(&heights, state.heights[at]);
    }
    return loads ^ heights * 0xc2b2ae3d27d4eb4f;
  }

  void Begin(size_t buffer) {
    std::vector<Choice> choices;
    for (size_t parent = 0; parent < states_.size(); parent++) {
      const uint32_t used = states_[parent].used;
      for (size_t k = 0; k < count_; k++) {
        const bool alike = k > 0 && problem_.untils[k] == problem_.untils[k - 1] && !problem_.fixed[k] && !(used >> (k - 1) & 3);
        if (!(problem_.allowed[buffer] >> k & 1) || problem_.ends[buffer] > problem_.untils[k] || alike) continue;
        const double grown = Grown(states_[parent], k, SizeOf(buffer));
        if (grown >= 0) choices.push_back({states_[parent].taken + grown, parent, k});
      }
    }
    const auto less = [](const Choice& one, const Choice& other) { return one.taken < other.taken; };
    std::stable_sort(choices.begin(), choices.end(), less);
    if (choices.size() > most_) choices.resize(most_);
    std::vector<size_t> left(states_.size());
    for (const Choice& choice : choices) left[choice.parent]++;
    std::vector<State> following;
    following.reserve(choices.size());
    for (const Choice& choice : choices) {
      State& parent = states_[choice.parent];
      State state = --left[choice.parent] ? State(parent) : std::move(parent);
      state.taken = choice.taken;
      Open(&state, choice.strip);
      state.choice.push_back(static_cast<int8_t>(choice.strip));
      for (size_t b = 0, at = choice.strip * bindings_; b < bindings_; b++, at++) {
        state.loads[at] += SizeOf(buffer)[b];
        state.heights[at] = std::max(state.heights[at], state.loads[at]);
      }
      following.push_back(std::move(state));
    }
    states_ = std::move(following);
  }

  // A strip that was idle was held all the while.
  void Open(State* state, size_t strip) const {
    const uint32_t bit = uint32_t{1} << strip;
    for (uint32_t set = 0; set < state->idle[strip].size(); set++) {
      if (!state->idle[strip][set].empty()) Lessen(state->idle[strip][set].data(), &state->room[set | bit]);
    }
    state->idle[strip].clear();
    state->opened |= bit;
    state->used |= bit;
    state->lying[strip]++;
  }

  void Lessen(const double* room, std::vector<double>* least) const {
    if (least->empty()) least->assign(bindings_, std::numeric_limits<double>::infinity());
    for (size_t b = 0; b < bindings_; b++) (*least)[b] = std::min((*least)[b], room[b]);
  }

  // By how much more the strips of a state take where a buffer lies in one; below 0 where there is no room for that.
  double Grown(const State& state, size_t strip, const double* size) const {
    const double* load = &state.loads[strip * bindings_];
    const double* height = &state.heights[strip * bindings_];
    std::vector<double>& grown = grown_;
    double total = 0, most = 0;
    for (size_t b = 0; b < bindings_; b++) {
      grown[b] = std::max(load[b] + size[b] - height[b], 0.0);
      most = std::max(most, grown[b]);
    }
    if (problem_.fixed[strip] && most > kRounding) return -1;
    if (most == 0) return 0;
    for (size_t b = 0; b < bindings_; b++) total += grown[b] * problem_.weights[b];
    if (total == 0) return 0;
    for (uint32_t set = 0; set < state.room.size(); set++) {
      if ((set >> strip & 1) && !Fits(state, set, grown)) return -1;
    }
    return total;
  }

  bool Fits(const State& state, uint32_t set, const std::vector<double>& grown) const {
    const std::vector<double>& room = state.room[set];
    if (room.empty()) return true;
    taken_.assign(bindings_, 0.0);
    std::copy(grown.begin(), grown.end(), taken_.begin());
    for (size_t k = 0; k < count_; k++) {
      for (size_t b = 0; (set >> k & 1) && b < bindings_; b++) taken_[b] += state.heights[k * bindings_ + b];
    }
    bool over = false;
    for (size_t b = 0; b < bindings_; b++) over |= taken_[b] > room[b] + kRounding;
    return !over;
  }

  // The states in which all that is held at a column, and was before, has room there.
  void Hold(const double* room) {
    const auto over = [&](State& state) {
      Lessen(room, &state.room[state.opened]);
      for (std::vector<std::vector<double>>& idle : state.idle) {
        if (!idle.empty()) Lessen(room, &idle[state.opened]);
      }
      for (uint32_t set = 1; set < state.room.size(); set++) {
        if (!Fits(state, set, {})) return true;
      }
      return false;
    };
    states_.erase(std::remove_if(states_.begin(), states_.end(), over), states_.end());
  }

  const StripProblem& problem_;
  const size_t most_, count_, bindings_;
  std::vector<State> states_;
  mutable std::vector<double> grown_ = std::vector<double>(bindings_), taken_;
};

}  // namespace

std::vector<int32_t> DivideAmongStrips(const StripProblem& problem, size_t most) {
  return StripSearch(problem, most).Run();
}

}  // namespace symalloc::packer

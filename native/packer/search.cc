#include "packer/search.h"

#include <algorithm>

#include "packer/split_mix.h"

namespace symalloc::packer {

namespace {

constexpr double kUntried = 0.01;              // the weight of a clique that has never failed
constexpr size_t kMostRemembered = 1u << 20;

}  // namespace

void Search::Begin(std::vector<int32_t> priorities, Rule rule, double share) {
  priorities_ = std::move(priorities);
  rule_ = rule;
  state_.Clear(share);
  depth_ = 0;
  answer_ = state_.Propagate();
  if (!answer_) return;
  Task* task = Push();
  for (int32_t i = 0; i < state_.problem().count(); ++i) task->left.push_back(i);
}

Outcome Search::Go(int64_t steps) {
  const int64_t last = steps_ + steps;
  while (depth_ > 0) {
    if (steps_ >= last && tasks_[depth_ - 1].phase == Phase::kStep) return Outcome::kCut;
    Advance();
  }
  return answer_ ? Outcome::kFound : Outcome::kNone;
}

void Search::Advance() {
  Task* task = &tasks_[depth_ - 1];
  switch (task->phase) {
    case Phase::kEnter: return Enter(task);
    case Phase::kParts: return NextPart(task);
    case Phase::kLook: return Look(task);
    case Phase::kStep: return Step(task);
    case Phase::kAnswer: return Answer(task);
  }
}

void Search::Enter(Task* task) {
  if (task->left.size() < 2) return Pop(true);
  task->phase = Phase::kLook;
  std::vector<Buffers> parts = Split(task->left);
  if (parts.size() < 2) return;
  task->phase = Phase::kParts;
  task->parts = std::move(parts);
  answer_ = true;
}

void Search::NextPart(Task* task) {
  if (!answer_ || task->parts.empty()) return Pop(answer_);
  Buffers part = std::move(task->parts.back());
  task->parts.pop_back();
  Push()->left = std::move(part);
}

void Search::Look(Task* task) {
  const Key key = KeyOf(task->left);
  if (failed_.count(key) != 0) return Remember(task);
  task->tried.push_back(key);
  task->phase = Phase::kStep;
}

void Search::Step(Task* task) {
  ++steps_;
  task->buffer = Choose(task->left);
  task->mark = state_.Mark();
  task->phase = Phase::kAnswer;
  answer_ = state_.Place(task->buffer);
  if (!answer_) return;
  const size_t here = depth_ - 1;
  Task* rest = Push();  // which may move `task`
  for (int32_t other : tasks_[here].left) {
    if (other != tasks_[here].buffer) rest->left.push_back(other);
  }
}

void Search::Answer(Task* task) {
  if (answer_) return Pop(true);
  state_.Undo(task->mark);
  task->phase = Phase::kLook;
  if (!state_.Exclude(task->buffer)) Remember(task);
}

// Ends `task` without success.
void Search::Remember(Task* task) {
  if (failed_.size() < kMostRemembered) failed_.insert(task->tried.begin(), task->tried.end());
  Pop(false);
}

Search::Task* Search::Push() {
  if (tasks_.size() == depth_) tasks_.emplace_back();
  Task* task = &tasks_[depth_++];
  task->phase = Phase::kEnter;
  task->left.clear();
  task->parts.clear();
  task->tried.clear();
  return task;
}

void Search::Pop(bool answer) {
  --depth_;
  answer_ = answer;
}

// `left` in parts that no moment joins, the smallest last.
std::vector<Search::Buffers> Search::Split(const Buffers& left) const {
  std::vector<Buffers> parts;
  int32_t end = -1;
  for (int32_t buffer : left) {
    const auto mine = state_.problem().cliques[buffer];
    if (mine.front() > end) parts.emplace_back();
    parts.back().push_back(buffer);
    end = std::max(end, mine.back());
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Buffers& a, const Buffers& b) { return a.size() < b.size(); });
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// The buffer to decide next: the first choice at the most pressing clique, or what fits below it.
int32_t Search::Choose(const Buffers& left) const {
  int32_t chosen = First(MostPressing(left));
  while (!state_.CanBeDecided(chosen)) chosen = Below(chosen);
  return chosen;
}

// Of those that lie lowest in `clique`, the one of the highest priority.
int32_t Search::First(int32_t clique) const {
  int32_t chosen = -1;
  for (int32_t i : state_.problem().members[clique]) {
    if (state_.placed(i) || state_.lowest(i) != state_.floor(clique)) continue;
    if (chosen < 0 || priorities_[i] > priorities_[chosen]) chosen = i;
  }
  return chosen;
}

// Of those that fit below `buffer`, the lowest; of these the one of the highest priority.
int32_t Search::Below(int32_t buffer) const {
  int32_t chosen = -1;
  for (int32_t i : state_.problem().neighbours[buffer]) {
    if (state_.placed(i) || state_.end(i) > state_.lowest(buffer)) continue;
    if (chosen < 0 || state_.lowest(i) < state_.lowest(chosen) ||
        (state_.lowest(i) == state_.lowest(chosen) && priorities_[i] > priorities_[chosen])) {
      chosen = i;
    }
  }
  return chosen;
}

// The clique to go on with, of those that `left` spans.
int32_t Search::MostPressing(const Buffers& left) const {
  const Lists& cliques = state_.problem().cliques;
  int32_t last = 0;
  for (int32_t buffer : left) last = std::max(last, cliques[buffer].back());
  int32_t best = -1;
  for (int32_t clique = cliques[left.front()].front(); clique <= last; ++clique) {
    if (state_.floor(clique) == State::kAbsent) continue;
    if (best < 0 || IsMorePressing(clique, best)) best = clique;
  }
  return best;
}

bool Search::IsMorePressing(int32_t clique, int32_t other) const {
  const auto choices = [&](int32_t c) { return state_.choices(c); };
  if (rule_ == Rule::kContested) {
    const auto per_failure = [&](int32_t c) { return choices(c) / (state_.weight(c) + kUntried); };
    return per_failure(clique) < per_failure(other);
  }
  if ((choices(clique) > 1) != (choices(other) > 1)) return choices(clique) <= 1;
  if (state_.floor(clique) != state_.floor(other)) return state_.floor(clique) < state_.floor(other);
  return state_.weight(clique) > state_.weight(other);
}

// What the rest of the search depends on, in 128 bits.
Search::Key Search::KeyOf(const Buffers& left) const {
  Key key{0, 0};
  for (int32_t buffer : left) {
    const auto offset = static_cast<uint64_t>(state_.lowest(buffer));
    const uint64_t one = Mix(offset + 0x9E3779B97F4A7C15u * (static_cast<uint64_t>(buffer) + 1));
    key.low = Mix(key.low + one);
    key.high = Mix(key.high ^ (one + 0xD1B54A32D192ED03u)) + offset;
  }
  return key;
}

}  // namespace symalloc::packer

// Depth-first search over partial packings, with decomposition by time and a memory of what has failed.
//
// The clique that is decided next, by rule.  kLowest: one with a single buffer that can come next, then the lowest, then
// the one that has been the reason of most failures.  kContested: the one with the fewest such buffers for each failure
// (dom/wdeg: Boussemart and others 2004).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include "packer/state.h"

namespace symalloc::packer {

enum class Rule { kLowest = 0, kContested = 1 };
enum class Outcome { kCut = 0, kFound = 1, kNone = 2 };

class Search {
 public:
  explicit Search(Problem problem) : state_(std::move(problem)) {}

  // Begins an attempt.  Of the buffers that may come next at the place chosen, the one of the highest priority
  // is tried first; priorities are all different.  `share` of the weights of failures is kept.
  void Begin(std::vector<int32_t> priorities, Rule rule, double share);
  // Goes on for at most `steps` steps; after kCut it may be called again.
  Outcome Go(int64_t steps);

  int64_t steps() const { return steps_; }
  const State& state() const { return state_; }

 private:
  struct Key {
    uint64_t low, high;
    bool operator==(const Key& other) const { return low == other.low && high == other.high; }
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.low; }
  };
  // kEnter: nothing is known yet.  kParts: its parts are solved one by one.  kLook: is it known to fail?
  // kStep: a buffer is to be chosen and placed.  kAnswer: answer_ says what came of that.
  enum class Phase { kEnter, kParts, kLook, kStep, kAnswer };
  using Buffers = std::vector<int32_t>;
  // The task to place all of `left`.
  struct Task {
    Phase phase;
    Buffers left;
    std::vector<Buffers> parts;  // what is still to be solved, the next one last
    std::vector<Key> tried;
    size_t mark;
    int32_t buffer;
  };

  void Advance();
  void Enter(Task* task);
  void NextPart(Task* task);
  void Look(Task* task);
  void Step(Task* task);
  void Answer(Task* task);
  Task* Push();
  void Pop(bool answer);
  void Remember(Task* task);
  std::vector<Buffers> Split(const Buffers& left) const;
  int32_t Choose(const Buffers& left) const;
  int32_t First(int32_t clique) const;
  int32_t Below(int32_t buffer) const;
  int32_t MostPressing(const Buffers& left) const;
  bool IsMorePressing(int32_t clique, int32_t other) const;
  Key KeyOf(const Buffers& left) const;

  State state_;
  std::vector<int32_t> priorities_;
  Rule rule_ = Rule::kLowest;
  int64_t steps_ = 0;
  std::vector<Task> tasks_;  // kept beyond depth_ for the memory that they hold
  size_t depth_ = 0;
  bool answer_ = true;  // of the task that ended last
  std::unordered_set<Key, KeyHash> failed_;
};

}  // namespace symalloc::packer

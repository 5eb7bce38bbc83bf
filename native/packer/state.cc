#include "packer/state.h"

#include <algorithm>

namespace symalloc::packer {

State::State(Problem problem) : problem_(std::move(problem)), weights_(problem_.members.size(), 0.0) {
  for (int32_t clique = 0; clique < problem_.members.size(); ++clique) {
    const auto members = problem_.members[clique];
    sorted_.emplace_back(members.begin(), members.end());
  }
  is_suspect_.assign(problem_.count(), 0);
  is_changed_.assign(problem_.members.size(), 0);
}

void State::Clear(double share) {
  const int32_t cliques = problem_.members.size();
  trail_.clear();
  lowest_ = problem_.lowest;
  placed_.assign(problem_.count(), 0);
  left_.assign(cliques, 0);
  floors_.assign(cliques, 0);
  tops_.assign(cliques, kAbsent);
  second_tops_.assign(cliques, kAbsent);
  choices_.assign(cliques, 0);
  for (double& weight : weights_) weight *= share;
  for (int32_t clique = 0; clique < cliques; ++clique) {
    for (int32_t buffer : problem_.members[clique]) left_[clique] += problem_.sizes[buffer];
    Change(clique);
  }
}

void State::Undo(size_t mark) {
  for (; trail_.size() > mark; trail_.pop_back()) *trail_.back().first = trail_.back().second;
}

bool State::Place(int32_t buffer) {
  Set(&placed_[buffer], 1);
  for (int32_t clique : problem_.cliques[buffer]) Set(&left_[clique], left_[clique] - problem_.sizes[buffer]);
  Change(problem_.cliques[buffer]);
  const int64_t top = end(buffer);
  for (int32_t other : problem_.neighbours[buffer]) {
    if (lowest_[other] < top && !placed(other) && !Raise(other, top)) return false;
  }
  return Propagate();
}

bool State::Exclude(int32_t buffer) { return Raise(buffer, Support(buffer)) && Propagate(); }

bool State::CanBeDecided(int32_t buffer) const {
  for (int32_t clique : problem_.cliques[buffer]) {
    if (tops_[clique] <= lowest_[buffer]) return false;
  }
  return true;
}

bool State::Propagate() {
  while (!changed_.empty()) {
    batch_.swap(changed_);
    changed_.clear();
    std::sort(batch_.begin(), batch_.end());
    for (int32_t clique : batch_) is_changed_[clique] = 0;
    for (int32_t buffer : suspects_) is_suspect_[buffer] = 0;
    suspects_.clear();
    for (int32_t clique : batch_) {
      if (!Bound(clique)) return Fail(clique);
    }
    if (!RaiseSuspects()) return false;
  }
  return true;
}

// What cannot come next in some clique does not lie where it is, unless something fits below it there.
bool State::RaiseSuspects() {
  std::sort(suspects_.begin(), suspects_.end());
  for (int32_t buffer : suspects_) {
    if (CanBeDecided(buffer) && !Raise(buffer, Support(buffer))) return false;
  }
  return true;
}

// Brings the figures of `clique` up to date; false where its members cannot all end within the capacity.
bool State::Bound(int32_t clique) {
  Sort(clique);
  const int64_t last = problem_.capacity - left_[clique];
  int64_t top = kAbsent, second = kAbsent;
  size_t cut = 0;
  for (int32_t buffer : open_) {
    const int64_t offset = end(buffer);
    second = std::min(second, std::max(top, offset));
    top = std::min(top, offset);
    if (lowest_[buffer] <= last) ++cut;
  }
  if (!Late(cut)) return false;
  Set(&tops_[clique], top);
  Set(&second_tops_[clique], second);
  Set(&floors_[clique], open_.empty() ? kAbsent : lowest_[open_.front()]);
  Set(&choices_[clique], static_cast<int64_t>(cut));
  return true;
}

// Suspects those of open_ from `cut` on, which cannot come next; false where they do not fit one on the other.
bool State::Late(size_t cut) {
  int64_t load = 0;
  for (size_t i = open_.size(); i-- > cut;) {
    load += problem_.sizes[open_[i]];
    if (lowest_[open_[i]] + load > problem_.capacity) return false;
  }
  for (size_t i = cut; i < open_.size(); ++i) {
    if (is_suspect_[open_[i]]) continue;
    is_suspect_[open_[i]] = 1;
    suspects_.push_back(open_[i]);
  }
  return true;
}

// Puts those left of `clique` into open_.  Little has moved since last time, hence by insertion.
void State::Sort(int32_t clique) {
  std::vector<int32_t>& members = sorted_[clique];
  for (size_t i = 1; i < members.size(); ++i) {
    const int32_t buffer = members[i];
    size_t to = i;
    for (; to > 0 && lowest_[members[to - 1]] > lowest_[buffer]; --to) members[to] = members[to - 1];
    members[to] = buffer;
  }
  open_.clear();
  for (int32_t buffer : members) {
    if (!placed(buffer)) open_.push_back(buffer);
  }
}

// The least end that a neighbour left to place can have.  `buffer` itself counts in tops_.
int64_t State::Support(int32_t buffer) const {
  int64_t least = kAbsent, second = kAbsent;
  for (int32_t clique : problem_.cliques[buffer]) {
    least = std::min(least, tops_[clique]);
    second = std::min(second, second_tops_[clique]);
  }
  return least < end(buffer) ? least : second;
}

// Lets `buffer` lie no lower than `offset`; false where that leaves it no place.
bool State::Raise(int32_t buffer, int64_t offset) {
  const int64_t over = offset % problem_.alignments[buffer];
  if (over != 0) offset += problem_.alignments[buffer] - over;
  if (offset > problem_.highest[buffer]) return Fail(problem_.cliques[buffer].front());
  Set(&lowest_[buffer], offset);
  Change(problem_.cliques[buffer]);
  return true;
}

// Counts a failure against `clique`; always false.
bool State::Fail(int32_t clique) {
  weights_[clique] += 1;
  for (int32_t other : changed_) is_changed_[other] = 0;
  changed_.clear();
  return false;
}

void State::Set(int64_t* slot, int64_t value) {
  if (*slot == value) return;
  trail_.emplace_back(slot, *slot);
  *slot = value;
}

void State::Change(int32_t clique) {
  if (is_changed_[clique]) return;
  is_changed_[clique] = 1;
  changed_.push_back(clique);
}

void State::Change(Lists::List cliques) {
  for (int32_t clique : cliques) Change(clique);
}

}  // namespace symalloc::packer

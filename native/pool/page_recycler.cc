#include "pool/page_recycler.h"

#include <algorithm>
#include <utility>

namespace symalloc {

namespace {

constexpr int64_t kMostMoved = 32 << 20;  // bytes at a time: other threads' faults may wait for it

}  // namespace

void PageRecycler::MoveTo(char* to, int64_t nbytes) {
  ForgoAll();
  while (nbytes > 0 && !runs_.empty() && Touched()) {
    PageRun& run = runs_.back();
    int64_t moved = std::min(run.nbytes, nbytes);
    if (!MovePages({run.base + run.nbytes - moved, moved}, to)) return;
    to += moved;
    nbytes -= moved;
    run.nbytes -= moved;
    if (run.nbytes == 0) runs_.pop_back();
  }
}

// False where moving is not worth it: nobody has written what was freed.
bool PageRecycler::Touched() {
  if (!std::exchange(looked_, true)) touched_ = IsResident(runs_.back().base);
  return touched_;
}

void PageRecycler::MoveLater(char* to, int64_t nbytes) noexcept {
  try {
    wanted_.push_back({to, nbytes});
  } catch (const std::bad_alloc&) {
    // fresh pages serve there
  }
}

bool PageRecycler::WantHuge(char* base, int64_t nbytes) noexcept {
  try {
    huge_wanted_.push_back({base, nbytes});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void PageRecycler::WantPages(char* base, int64_t nbytes) noexcept {
  try {
    pages_wanted_.push_back({base, nbytes});
  } catch (const std::bad_alloc&) {
    // a fault makes each
  }
}

void PageRecycler::Ask() {
  for (const PageRun& run : huge_wanted_) AskForHugePages(run.base, run.nbytes);
  for (const PageRun& run : pages_wanted_) MakePages(run);
  huge_wanted_.clear();
  pages_wanted_.clear();
}

void PageRecycler::ForgoHuge(char* base, int64_t nbytes) noexcept {
  try {
    huge_forgone_.push_back({base, nbytes});
  } catch (const std::bad_alloc&) {
    ForgoHugePages(base, nbytes);
  }
}

// Before pages go: those that move take it with them.
void PageRecycler::ForgoAll() {
  for (const PageRun& run : huge_forgone_) ForgoHugePages(run.base, run.nbytes);
  huge_forgone_.clear();
}

void PageRecycler::GiveBack() {
  ForgoAll();
  GiveBackPages(runs_.data(), runs_.size());
  runs_.clear();
}

PageRecycler::Part PageRecycler::Next(int64_t nbytes) const {
  if (wanted_.empty()) return Last(nbytes);
  return {0, std::min({runs_.back().nbytes, wanted_.back().nbytes, kMostMoved})};
}

PageRecycler::Part PageRecycler::Last(int64_t nbytes) const {
  Part part{0, 0};
  while (part.whole < runs_.size() && runs_[runs_.size() - 1 - part.whole].nbytes <= nbytes) {
    nbytes -= runs_[runs_.size() - 1 - part.whole].nbytes;
    ++part.whole;
  }
  if (part.whole > 0 || runs_.empty()) return part;
  // a huge page that is given back in two parts goes only with the second
  auto end = reinterpret_cast<int64_t>(runs_.back().base) + runs_.back().nbytes;
  part.bytes = std::min(runs_.back().nbytes, end - ((end - nbytes) & -kHugePage));
  return part;
}

void PageRecycler::Settle(const Part& part) {
  ForgoAll();
  if (Move(part)) return;
  size_t first = runs_.size() - part.whole;
  GiveBackPages(runs_.data() + first, part.whole);
  if (part.bytes == 0) return;
  PageRun cut = runs_[first - 1];
  cut.base += cut.nbytes - part.bytes;
  cut.nbytes = part.bytes;
  GiveBackPages(&cut, 1);
}

// False where it is to go back.  Both ends are filled from, so that neighbours stay neighbours.
bool PageRecycler::Move(const Part& part) {
  if (wanted_.empty()) return false;
  auto& [to, left] = wanted_.back();
  left -= part.bytes;
  const PageRun& run = runs_.back();
  if (!Touched() || !MovePages({run.base + run.nbytes - part.bytes, part.bytes}, to + left)) {
    wanted_.clear();
    return false;
  }
  if (left == 0) wanted_.pop_back();
  return true;
}

int64_t PageRecycler::Drop(const Part& part) {
  int64_t dropped = part.bytes;
  for (size_t i = 0; i < part.whole; ++i) {
    dropped += runs_.back().nbytes;
    runs_.pop_back();
  }
  if (part.bytes > 0 && (runs_.back().nbytes -= part.bytes) == 0) runs_.pop_back();
  return dropped;
}

const char* Limbo::EndWithin(const char* begin, int64_t nbytes) const {
  for (const PageRecycler* each = first_; each != nullptr; each = each->next_) {
    for (const PageRun& run : each->runs_) {
      if (run.base < begin + nbytes && begin < run.base + run.nbytes) return run.base + run.nbytes;
    }
  }
  return nullptr;
}

void Limbo::Add(PageRecycler* recycler) {
  for (const PageRun& run : recycler->runs_) bytes_ += run.nbytes;
  recycler->next_ = first_;
  first_ = recycler;
}

void Limbo::Remove(PageRecycler* recycler) {
  for (const PageRun& run : recycler->runs_) bytes_ -= run.nbytes;
  PageRecycler** at = &first_;
  while (*at != recycler) at = &(*at)->next_;
  *at = recycler->next_;
}

void Limbo::Inherit() {
  for (PageRecycler* each = first_; each != nullptr; each = each->next_) {
    each->GiveBack();
  }
  first_ = nullptr;
  bytes_ = 0;
}

}  // namespace symalloc

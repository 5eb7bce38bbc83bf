// What a pool says of itself.  None of this takes part in its decisions.
#include <algorithm>
#include <utility>

#include "pool.h"
#include "rounding.h"

namespace symalloc {

void Peak::Raise(const Peak& other) {
  used = std::max(used, other.used);
  reserved = std::max(reserved, other.reserved);
}

Statistics Pool::statistics() {
  std::lock_guard<std::mutex> lock(mutex_);
  Statistics s;
  s.live = retired_live_;
  s.allocs = retired_allocs_;
  s.frees = retired_frees_;
  for (auto& local : locals_) {
    s.live += local->live.left();
    s.allocs += local->allocs.load(std::memory_order_relaxed);
    s.frees += local->frees.load(std::memory_order_relaxed);
  }
  s.used = used_;
  s.peak_used = std::max(peak_.used, recent_.used);
  s.reserved = ReservedLocked();
  s.peak_reserved = std::max(peak_.reserved, recent_.reserved);
  s.refused = refused_;
  for (auto& range : ranges_) {
    s.commits += range->pages.commits;
    s.committed += range->pages.committed;
    s.decommits += range->pages.decommits;
    s.decommitted += range->pages.decommitted;
  }
  s.threads = static_cast<int64_t>(locals_.size());
  return s;
}

void Pool::ResetPeak() {
  std::lock_guard<std::mutex> lock(mutex_);
  FoldPeaks();
  peak_ = recent_;
}

// Tells everybody who counts peaks of the most since they were last told.
void Pool::FoldPeaks() {
  peak_.Raise(recent_);
  for (auto& [_, peak] : tally_peaks_) peak.Raise(recent_);
  recent_ = Peak{used_, ReservedLocked()};
}

int64_t Pool::OpenTally() {
  int64_t id = ledger_.OpenTally(statistics().live);
  std::lock_guard<std::mutex> lock(mutex_);
  FoldPeaks();
  tally_peaks_[id] = recent_;
  return id;
}

std::pair<Tally, Peak> Pool::ReadTally(int64_t id) {
  Tally tally = ledger_.ReadTally(id);
  std::lock_guard<std::mutex> lock(mutex_);
  FoldPeaks();
  auto found = tally_peaks_.find(id);
  return {tally, found == tally_peaks_.end() ? Peak{} : found->second};
}

void Pool::CloseTally(int64_t id) {
  ledger_.CloseTally(id);
  std::lock_guard<std::mutex> lock(mutex_);
  tally_peaks_.erase(id);
}

void Pool::Tag(void* block, int64_t nbytes, std::string_view tag) {
  if (guard_ != nullptr) guard_->Name(block, std::string(tag));
  ledger_.Tag(block, nbytes, tag);
}

std::vector<int64_t> Pool::Layout() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int64_t> layout;
  for (auto& range : ranges_) {
    std::vector<int64_t> holes, runs;
    range->holes.Downwards([&](int64_t start, int64_t end) {
      holes.insert(holes.end(), {start, end});
      return true;
    });
    range->pages.Runs([&](int64_t start, int64_t end) { runs.insert(runs.end(), {start, end}); });
    layout.insert(layout.end(), {static_cast<int64_t>(holes.size()) / 2, static_cast<int64_t>(runs.size()) / 2});
    layout.insert(layout.end(), holes.begin(), holes.end());
    layout.insert(layout.end(), runs.begin(), runs.end());
  }
  return layout;
}

int64_t Pool::Range::LargestHole() const {
  int64_t largest = 0;
  holes.Downwards([&](int64_t start, int64_t end) {
    largest = std::max(largest, end - start);
    return true;
  });
  return largest;
}

int64_t Pool::Range::LargestBacked(int64_t page) const {
  int64_t largest = 0;
  holes.Downwards([&](int64_t start, int64_t end) {
    int64_t first = std::min(RoundUp(start, page), end), last = std::max(end & -page, start);
    for (auto [from, to] : {std::pair(start, first), std::pair(last, end)}) {
      if (to > from && pages.Missing(from, to - from) == 0) largest = std::max(largest, to - from);
    }
    return true;
  });
  return largest;
}

Shortage Pool::ShortageOf(const Range& range, int64_t size, int64_t missing) {
  int64_t in_bins = 0;
  for (auto& local : locals_) in_bins += local->held();
  return {size, options_.limit, used_ - in_bins, in_bins, ReservedLocked(), missing, range.LargestBacked(options_.page),
          options_.page};
}

}  // namespace symalloc

// What a pool says of itself.  None of this takes part in its decisions.
#include <algorithm>
#include <utility>

#include "pool/pool.h"
#include "pool/rounding.h"

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
  for (auto& cache : caches_) {
    s.live += cache->live.left();
    s.allocs += cache->allocs.load(std::memory_order_relaxed);
    s.frees += cache->frees.load(std::memory_order_relaxed);
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
  s.threads = static_cast<int64_t>(caches_.size());
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
  for (auto& [_, peak] : scope_peaks_) peak.Raise(recent_);
  recent_ = Peak{used_, ReservedLocked()};
}

int64_t Pool::OpenScope() {
  int64_t id = tracker_.OpenScope(statistics().live);
  std::lock_guard<std::mutex> lock(mutex_);
  FoldPeaks();
  scope_peaks_[id] = recent_;
  return id;
}

std::pair<ScopeStatistics, Peak> Pool::ReadScope(int64_t id) {
  ScopeStatistics scope = tracker_.ReadScope(id);
  std::lock_guard<std::mutex> lock(mutex_);
  FoldPeaks();
  auto found = scope_peaks_.find(id);
  return {scope, found == scope_peaks_.end() ? Peak{} : found->second};
}

void Pool::CloseScope(int64_t id) {
  tracker_.CloseScope(id);
  std::lock_guard<std::mutex> lock(mutex_);
  scope_peaks_.erase(id);
}

void Pool::Tag(void* block, int64_t nbytes, std::string_view tag) {
  if (guard_ != nullptr) guard_->Name(block, std::string(tag));
  tracker_.Tag(block, nbytes, tag);
}

std::vector<int64_t> Pool::Layout() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int64_t> layout;
  for (auto& range : ranges_) {
    std::vector<int64_t> free_list, runs;
    range->free_list.Downwards([&](int64_t start, int64_t end) {
      free_list.insert(free_list.end(), {start, end});
      return true;
    });
    range->pages.Runs([&](int64_t start, int64_t end) { runs.insert(runs.end(), {start, end}); });
    layout.insert(layout.end(), {static_cast<int64_t>(free_list.size()) / 2, static_cast<int64_t>(runs.size()) / 2});
    layout.insert(layout.end(), free_list.begin(), free_list.end());
    layout.insert(layout.end(), runs.begin(), runs.end());
  }
  return layout;
}

int64_t Pool::Range::LargestFree() const {
  int64_t largest = 0;
  free_list.Downwards([&](int64_t start, int64_t end) {
    largest = std::max(largest, end - start);
    return true;
  });
  return largest;
}

int64_t Pool::Range::LargestBacked(int64_t page) const {
  int64_t largest = 0;
  free_list.Downwards([&](int64_t start, int64_t end) {
    int64_t first = std::min(RoundUp(start, page), end), last = std::max(end & -page, start);
    for (auto [from, to] : {std::pair(start, first), std::pair(last, end)}) {
      if (to > from && pages.Missing(from, to - from) == 0) largest = std::max(largest, to - from);
    }
    return true;
  });
  return largest;
}

OutOfMemoryReport Pool::ReportOn(const Range& range, int64_t size, int64_t missing) {
  int64_t in_bins = 0;
  for (auto& cache : caches_) in_bins += cache->held();
  return {size, options_.limit, used_ - in_bins, in_bins, ReservedLocked(), missing, range.LargestBacked(options_.page),
          options_.page};
}

}  // namespace symalloc

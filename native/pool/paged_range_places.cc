// Where blocks are placed.
#include "pool/paged_range.h"
#include "pool/sizes.h"

namespace symalloc {

namespace {

constexpr int kMostTried = 32;  // places, in search of one that is clear of limbo

}  // namespace

// Calls visit(offset) for the places of a block at the ends of a free interval and of the runs of free pages in it, but for
// the end of the range, until it returns false.
template <typename Visit>
void PagedRange::ForPlaces(const FreeList::Interval& free, int64_t size, int64_t align, Visit visit) const {
  bool more = true;
  auto visit_fitting = [&](int64_t offset) {
    if (more && offset >= free.start && offset + size <= free.end) more = visit(offset);
    return more;
  };
  if (free.end - free.start < size || !visit_fitting(RoundUp(free.start, align))) return;
  auto visit_end = [&](int64_t end) { return end == capacity_ || visit_fitting((end - size) & -align); };
  if (!visit_end(free.end)) return;
  givable_.RunsIn(EndTouched(free.start), free.end >> shift_, [&](int64_t first, int64_t last) {
    return visit_fitting(RoundUp(first * page_, align)) && visit_end(last * page_);
  });
}

// In the smallest free interval where all pages of a block are backed; kNone where they are in none.
int64_t PagedRange::FindBacked(int64_t size, int64_t align) const {
  int64_t found = kNone;
  free_list_.FromSize(size, [&](const FreeList::Interval& free) {
    ForPlaces(free, size, align, [&](int64_t offset) {
      if (pages_.IsBacked(offset, size, page_)) found = offset;
      return found == kNone;
    });
    return found == kNone;
  });
  return found;
}

// The highest place of those that lack the fewest pages.  Those in the middle of a run of free pages lack as many as its
// ends do, and so do those at the end of the range.
PagedRange::Place PagedRange::TightestBy(int64_t grain, int64_t size, int64_t align) const {
  Place best;
  int64_t most = INT64_MAX;  // what is missing in a place that is worse
  free_list_.Downwards([&](int64_t start, int64_t end) {
    ForPlaces({start, end}, size, align, [&](int64_t offset) {
      int64_t missing = pages_.Missing(offset, size, grain, most);
      bool better = std::pair(missing, -offset) < std::pair(best.missing, -best.offset);
      if (best.offset == kNone || better) best = {offset, missing, grain};
      most = best.missing + pages_.unit();
      return true;
    });
    return true;
  });
  return best;
}

// `offset` where no page of a place there is in limbo; else where the next one may be.
int64_t PagedRange::PastLimbo(int64_t offset, int64_t size) const {
  if (limbo.empty()) return offset;
  int64_t first = offset & -page_;
  const char* end = limbo.EndWithin(base_ + first, RoundUp(offset + size, page_) - first);
  return end == nullptr ? offset : RoundUp(end - base_, page_);
}

// The lowest place that is clear of limbo, as far as it is looked for; else kNone.
int64_t PagedRange::FindClear(int64_t size, int64_t align) const {
  int64_t found = kNone;
  int tried = 0;
  free_list_.Upwards([&](int64_t start, int64_t end) {
    for (int64_t offset = RoundUp(start, align); offset + size <= end && tried < kMostTried; ++tried) {
      int64_t past = PastLimbo(offset, size);
      if (past == offset) {
        found = offset;
        return false;
      }
      offset = RoundUp(past, align);
    }
    return tried < kMostTried;
  });
  return found;
}

// kNone where there is no place; throws Awaited.
int64_t PagedRange::FindPlace(int64_t size, int64_t align) const {
  int64_t offset = free_list_.Find(size, align);
  if (offset == kNone || PastLimbo(offset, size) == offset) return offset;
  offset = FindClear(size, align);
  if (offset == kNone) throw Awaited();
  return offset;
}

// The place that is taken; where that would break a limit, and few intervals are free, one that lacks no page, or else the
// fewest.
PagedRange::Place PagedRange::LeastMissing(int64_t size, int64_t align, int64_t in_use) const {
  int64_t offset = FindPlace(size, align);
  if (offset == kNone) return {};
  Place found{offset, pages_.Missing(offset, size, page_), page_};
  if (Crowded() || !Over(found.missing, size, in_use)) return found;
  offset = FindBacked(size, align);
  if (offset != kNone) return {offset, 0, page_};
  Place least = TightestBy(page_, size, align);
  return PastLimbo(least.offset, size) == least.offset ? least : found;
}

}  // namespace symalloc

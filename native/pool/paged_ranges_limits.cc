// The limits of a pool, and what is given back so that they hold.
#include <algorithm>
#include <tuple>
#include <utility>

#include "pool/paged_ranges.h"
#include "pool/sizes.h"

namespace symalloc {

namespace {

constexpr int64_t kLeastSoft = 2 << 20;  // bytes
constexpr int64_t kExcess = 64;          // the soft limit is clearly exceeded by this share of it
constexpr int64_t kAhead = 2 << 20;      // bytes

}  // namespace

// -1: none.
int64_t PagedRanges::SoftLimit(int64_t size, int64_t in_use) const {
  if (soft_denominator_ == 0) return soft_numerator_;
  if (soft_numerator_ < 0) return -1;
  __int128 used = std::max(peak_used, in_use + size);
  __int128 soft = soft_numerator_ * used / soft_denominator_;
  return static_cast<int64_t>(std::clamp<__int128>(soft, kLeastSoft, int64_t{1} << 62));
}

// True where backing `missing` bytes more, if any, breaks a limit; throws Awaited where it would not but for limbo.
bool PagedRanges::Over(int64_t missing, int64_t size, int64_t in_use) const {
  if (missing == 0) return false;
  int64_t soft = SoftLimit(size, in_use);
  int64_t backed = reserved() + missing;
  if ((soft >= 0 && backed > soft) || (limit >= 0 && backed > limit)) return true;
  if (limit >= 0 && backed + limbo.bytes() > limit) throw Awaited();
  return false;
}

// Gives free pages back so that a block can be backed; false where that breaks the limit all the same.
bool PagedRanges::MakeRoom(int which, const Place& place, int64_t size, int64_t in_use, PageRecycler* recycler) {
  int64_t soft = SoftLimit(size, in_use);
  if (soft >= 0) {
    GiveBack(which, reserved() + place.missing - soft, recycler);
    int64_t most = soft + std::max(soft / kExcess, kLeastSoft);
    if (reserved() + place.missing > most && ranges_[which].pages.unit() < page_) {
      int64_t given = GiveBackFragments(which, reserved() + place.missing - most + kAhead, place, size, recycler);
      if (limit >= 0) most = std::min(most, limit - limbo.bytes());
      BackAhead(&ranges_[which], std::min({given, most - reserved() - place.missing, kAhead}), recycler);
    }
  }
  if (limit < 0) return true;
  GiveBack(which, reserved() + place.missing - limit, recycler);
  return reserved() + limbo.bytes() + place.missing <= limit;
}

// Gives back free pages, in as few pieces as can be: those of the smallest run that is large enough, and where none is, of
// the largest; the bytes.  Where many intervals are free, the highest pages go first.
int64_t PagedRanges::Range::DecommitFitting(int64_t nbytes, PageRecycler* recycler) {
  if (Crowded()) return DecommitFree(nbytes, recycler);
  int64_t given = 0;
  while (given < nbytes) {
    const int64_t wanted = EndTouched(nbytes - given);
    int64_t first = 0, last = 0;
    givable.RunsIn(0, EndTouched(pages.end()), [&, wanted](int64_t begin, int64_t end) {
      int64_t found = last - first, count = end - begin;
      bool better = found < wanted ? count > found : count >= wanted && count < found;
      if (better) std::tie(first, last) = std::pair(begin, end);
      return last - first != wanted;
    });
    if (first == last) break;
    first = std::max(first, last - wanted);
    givable.Erase(first, last);
    given += pages.Decommit(first * page, last * page, recycler);
  }
  return given;
}

// Gives back as many bytes of free pages as there are, those of range `which` first.
void PagedRanges::GiveBack(int which, int64_t nbytes, PageRecycler* recycler) {
  for (int i = 0; i < count_ && nbytes > 0; ++i) {
    nbytes -= ranges_[i == 0 ? which : 1 - which].DecommitFitting(nbytes, recycler);
  }
}

// The same with pages of the system within the pool's, but for the pages that the block at `place` covers; the bytes.
int64_t PagedRanges::GiveBackFragments(int which, int64_t nbytes, const Place& place, int64_t size,
                                       PageRecycler* recycler) {
  int64_t given = 0;
  for (int i = 0; i < count_ && given < nbytes; ++i) {
    Range& range = ranges_[i == 0 ? which : 1 - which];
    int64_t first = place.offset >> range.shift, last = range.EndTouched(place.offset + size);
    given += range.DecommitFragments(nbytes - given, first, i == 0 ? last : first, recycler);
  }
  return given;
}

// Backs up to `nbytes` bytes of whole pages at the end of a range, with pages of `recycler`.
void PagedRanges::BackAhead(Range* range, int64_t nbytes, PageRecycler* recycler) {
  auto [start, end] = range->free_list.Around(capacity_ - 1);
  start = RoundUp(start, page_);
  nbytes = std::min(nbytes, end - start) & -page_;
  if (nbytes <= 0 || PastLimbo(*range, start, nbytes) != start) return;
  try {
    range->Prepare(start + nbytes, page_);
  } catch (const OutOfMemory&) {
    return;
  } catch (const std::bad_alloc&) {
    return;
  }
  range->givable.Insert(start >> range->shift, (start + nbytes) >> range->shift);
  range->pages.Commit(start, nbytes, page_, recycler);
}

}  // namespace symalloc

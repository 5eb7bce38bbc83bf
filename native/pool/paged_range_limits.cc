// The limits of a pool, and what is given back so that they hold.
#include <algorithm>
#include <tuple>
#include <utility>

#include "pool/paged_range.h"
#include "pool/sizes.h"

namespace symalloc {

namespace {

constexpr int64_t kLeastSoft = 2 << 20;  // bytes
constexpr int64_t kExcess = 64;          // the soft limit is clearly exceeded by this share of it
constexpr int64_t kAhead = 2 << 20;      // bytes

}  // namespace

// -1: none.
int64_t PagedRange::SoftLimit(int64_t size, int64_t in_use) const {
  if (soft_denominator_ == 0) return soft_numerator_;
  if (soft_numerator_ < 0) return -1;
  __int128 used = std::max(peak_in_use, in_use + size);
  __int128 soft = soft_numerator_ * used / soft_denominator_;
  return static_cast<int64_t>(std::clamp<__int128>(soft, kLeastSoft, int64_t{1} << 62));
}

// True where backing `missing` bytes more, if any, breaks a limit; throws Awaited where it would not but for limbo.
bool PagedRange::Over(int64_t missing, int64_t size, int64_t in_use) const {
  if (missing == 0) return false;
  int64_t soft = SoftLimit(size, in_use);
  int64_t backed = reserved() + missing;
  if ((soft >= 0 && backed > soft) || (limit >= 0 && backed > limit)) return true;
  if (limit >= 0 && backed + limbo.bytes() > limit) throw Awaited();
  return false;
}

// Gives free pages back so that a block can be backed; false where that breaks the limit all the same.
bool PagedRange::MakeRoom(const Place& place, int64_t size, int64_t in_use, PageRecycler* recycler) {
  int64_t soft = SoftLimit(size, in_use);
  if (soft >= 0) {
    GiveBackFitting(reserved() + place.missing - soft, recycler);
    int64_t most = soft + std::max(soft / kExcess, kLeastSoft);
    if (reserved() + place.missing > most && has_units()) {
      int64_t given = GiveBackFragments(reserved() + place.missing - most + kAhead, place, size, recycler);
      if (limit >= 0) most = std::min(most, limit - limbo.bytes());
      BackAhead(std::min({given, most - reserved() - place.missing, kAhead}), recycler);
    }
  }
  if (limit < 0) return true;
  GiveBackFitting(reserved() + place.missing - limit, recycler);
  return reserved() + limbo.bytes() + place.missing <= limit;
}

// Gives back free pages, in as few pieces as can be: those of the smallest run that is large enough, and where none is, of
// the largest.  Where many intervals are free, the highest pages go first.
void PagedRange::GiveBackFitting(int64_t nbytes, PageRecycler* recycler) {
  if (Crowded()) {
    GiveBack(nbytes, recycler);
    return;
  }
  while (nbytes > 0) {
    const int64_t wanted = EndTouched(nbytes);
    int64_t first = 0, last = 0;
    givable_.RunsIn(0, EndTouched(pages_.end()), [&, wanted](int64_t begin, int64_t end) {
      int64_t found = last - first, count = end - begin;
      bool better = found < wanted ? count > found : count >= wanted && count < found;
      if (better) std::tie(first, last) = std::pair(begin, end);
      return last - first != wanted;
    });
    if (first == last) break;
    first = std::max(first, last - wanted);
    givable_.Erase(first, last);
    nbytes -= pages_.Decommit(first * page_, last * page_, recycler);
  }
}

// Gives back free pages of the system within pages of which none is wholly free, the highest first, and what is free in a
// page at once, but nothing of the pages that the block at `place` covers; the bytes.
int64_t PagedRange::GiveBackFragments(int64_t nbytes, const Place& place, int64_t size, PageRecycler* recycler) {
  const int64_t kept = place.offset >> shift_, kept_end = EndTouched(place.offset + size);
  int64_t given = 0;
  while (given < nbytes) {
    int64_t at = fragments_.Highest();
    if (at == PageSet::kNone) break;
    fragments_.Erase(at, at + 1);
    if (at >= kept && at < kept_end) continue;
    free_list_.Within(at * page_, (at + 1) * page_, [&](int64_t from, int64_t to) {
      given += pages_.Decommit(RoundUp(from, pages_.unit()), to & -pages_.unit(), recycler);
    });
  }
  return given;
}

// Backs up to `nbytes` bytes of whole pages at the end of the range, with pages of `recycler`.
void PagedRange::BackAhead(int64_t nbytes, PageRecycler* recycler) {
  auto [start, end] = free_list_.Around(capacity_ - 1);
  start = RoundUp(start, page_);
  nbytes = std::min(nbytes, end - start) & -page_;
  if (nbytes <= 0 || PastLimbo(start, nbytes) != start) return;
  try {
    Prepare(start + nbytes, page_);
  } catch (const OutOfMemory&) {
    return;
  } catch (const std::bad_alloc&) {
    return;
  }
  givable_.Insert(start >> shift_, (start + nbytes) >> shift_);
  pages_.Commit(start, nbytes, page_, recycler);
}

}  // namespace symalloc

// The pages of one address range that are backed: tests/pool/reference/page_table.py is the reference.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pool/first_touches.h"
#include "pool/page_recycler.h"
#include "pool/page_set.h"
#include "pool/sizes.h"

namespace symalloc {

// In units of the system's page.  A `grain`, a power of two of at least a unit, rounds what is backed at both ends.
class PageTable {
 public:
  // Units of `unit` bytes (a power of two) from `base` on; `huge`: ask for huge pages where they fit.
  PageTable(char* base, int64_t unit, bool huge);

  int64_t unit() const { return unit_; }

  // Nothing from here on is backed.
  int64_t end() const { return static_cast<int64_t>(words_.size()) * 64 << shift_; }

  // Bytes that are missing of [offset, offset + nbytes).  Where they are no less than `most`, some that are not may do.
  int64_t Missing(int64_t offset, int64_t nbytes, int64_t grain, int64_t most = INT64_MAX) const;

  // True where nothing is missing; looks at both ends first.
  bool IsBacked(int64_t offset, int64_t nbytes, int64_t grain) const {
    int64_t first = (offset & -grain) >> shift_, last = RoundUp(offset + nbytes, grain) >> shift_;
    if (last << shift_ > end() || !backed(first) || !backed(last - 1)) return false;
    return CountMissing(first, last, 1) == 0;
  }

  // Makes room for [0, end): to back it cannot fail any more.
  void Reserve(int64_t end, int64_t grain);

  // Backs what is missing of [offset, offset + nbytes).  `recycler` is told of it: pages that it has may serve.
  void Commit(int64_t offset, int64_t nbytes, int64_t grain, PageRecycler* recycler);

  // Gives back what is backed of [start, end), multiples of a unit; the bytes.  They go to `recycler`, or, without one,
  // to the operating system.
  int64_t Decommit(int64_t start, int64_t end, PageRecycler* recycler);

  // Calls visit(start, end) for each run of backed pages, the lowest first.
  template <typename Visit>
  void Runs(Visit visit) const {
    int64_t count = static_cast<int64_t>(words_.size()) * 64;
    for (int64_t first = 0; first < count; ++first) {
      if (!backed(first)) continue;
      int64_t last = first + 1;
      while (last < count && backed(last)) ++last;
      visit(first << shift_, last << shift_);
      first = last;
    }
  }

  int64_t reserved() const { return committed - decommitted; }

  int64_t commits = 0, committed = 0, decommits = 0, decommitted = 0;

 private:
  // Calls visit(base, nbytes) for each run of units of [first, last) that are not backed.
  template <typename Visit>
  void ForMissing(int64_t first, int64_t last, Visit visit) const {
    for (int64_t at = first; at < last; ++at) {
      if (backed(at)) continue;
      int64_t begin = at;
      while (at + 1 < last && !backed(at + 1)) ++at;
      visit(base_ + (begin << shift_), (at + 1 - begin) << shift_);
    }
  }
  int64_t CountMissing(int64_t first, int64_t last, int64_t most) const;
  bool WantHuge(char* base, int64_t nbytes, PageRecycler* recycler);
  void WantPages(int64_t offset, int64_t nbytes, PageRecycler* recycler);
  void ForgoHuge(int64_t first, int64_t last, PageRecycler* recycler);
  bool backed(int64_t at) const { return words_[at >> 6] >> (at & 63) & 1; }

  char* base_;
  int64_t unit_;
  int shift_;
  bool huge_;
  FirstTouches touches_;
  PageSet asked_;                      // huge pages, by number, that may back what lies there
  std::vector<uint64_t> words_;        // one bit a unit; short of the end: not backed
};

}  // namespace symalloc

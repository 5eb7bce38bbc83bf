#include "pool/page_table.h"

#include <algorithm>

namespace symalloc {

namespace {

// The bits [from, to) of a word, 0 <= from < to <= 64.
uint64_t Mask(int64_t from, int64_t to) {
  uint64_t upto = to == 64 ? ~uint64_t{0} : (uint64_t{1} << to) - 1;
  return upto & ~((uint64_t{1} << from) - 1);
}

}  // namespace

PageTable::PageTable(char* base, int64_t page, bool huge)
    : base_(base), page_(page), shift_(__builtin_ctzll(page)), huge_(huge) {}

int64_t PageTable::Missing(int64_t offset, int64_t nbytes) const {
  int64_t first = offset >> shift_;
  int64_t last = (offset + nbytes + page_ - 1) >> shift_;
  return CountMissing(first, last) << shift_;
}

void PageTable::Commit(int64_t offset, int64_t nbytes, PageRecycler* recycler) {
  int64_t missing = Missing(offset, nbytes);
  if (missing == 0) return;
  int64_t first = offset >> shift_;
  int64_t last = (offset + nbytes + page_ - 1) >> shift_;
  if (last > static_cast<int64_t>(words_.size()) * 64) words_.resize(last / 64 + 1);
  if (recycler != nullptr && !recycler->empty()) {
    Fill(first, last, recycler);
  } else if (huge_ && missing == (last - first) << shift_) {
    AskForHugePages(base_ + (first << shift_), missing);
  }
  for (int64_t word = first >> 6; word << 6 < last; ++word) {
    words_[word] |= Mask(std::max<int64_t>(first - (word << 6), 0), std::min<int64_t>(last - (word << 6), 64));
  }
  ++commits;
  committed += missing;
}

// Moves spare pages to where none of [first, last) are.
void PageTable::Fill(int64_t first, int64_t last, PageRecycler* recycler) {
  for (int64_t page = first; page < last && !recycler->empty(); ++page) {
    if (backed(page)) continue;
    int64_t begin = page;
    while (page + 1 < last && !backed(page + 1)) ++page;
    recycler->MoveTo(base_ + (begin << shift_), (page + 1 - begin) << shift_);
  }
}

int64_t PageTable::Decommit(int64_t start, int64_t end, int64_t nbytes, PageRecycler* recycler) {
  int64_t first = (start + page_ - 1) >> shift_;
  int64_t last = std::min<int64_t>(end >> shift_, static_cast<int64_t>(words_.size()) * 64);
  if (last <= first) return 0;
  int64_t wanted = std::min((nbytes + page_ - 1) >> shift_, last - first - CountMissing(first, last));
  if (wanted <= 0) return 0;
  for (int64_t left = wanted; left > 0;) {
    while (!backed(last - 1)) --last;
    int64_t run_end = last;
    while (left > 0 && last > first && backed(last - 1)) {
      --last;
      words_[last >> 6] &= ~(uint64_t{1} << (last & 63));
      --left;
    }
    char* run = base_ + (last << shift_);
    int64_t length = (run_end - last) << shift_;
    if (recycler != nullptr) {
      recycler->Add(run, length);
    } else {
      GiveBackPages(run, length, huge_);
    }
  }
  ++decommits;
  decommitted += wanted << shift_;
  return wanted << shift_;
}

int64_t PageTable::CountMissing(int64_t first, int64_t last) const {
  int64_t known = std::clamp(static_cast<int64_t>(words_.size()) * 64, first, last);
  int64_t count = last - known;
  if (known == first) return count;
  for (int64_t word = first >> 6; word << 6 < known; ++word) {
    uint64_t mask = Mask(std::max<int64_t>(first - (word << 6), 0), std::min<int64_t>(known - (word << 6), 64));
    uint64_t missing = mask & ~words_[word];
    if (missing != 0) count += __builtin_popcountll(missing);  // a call, on machines of any age
  }
  return count;
}

}  // namespace symalloc

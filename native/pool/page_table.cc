#include "pool/page_table.h"

#include <algorithm>

#include "pool/sizes.h"

namespace symalloc {

namespace {

constexpr int64_t kMovedAtOnce = 2 << 20;  // bytes at most under the pool's mutex

}  // namespace

PageTable::PageTable(char* base, int64_t unit, bool huge)
    : base_(base), unit_(unit), shift_(__builtin_ctzll(unit)), huge_(huge) {}

int64_t PageTable::Missing(int64_t offset, int64_t nbytes, int64_t grain, int64_t most) const {
  return CountMissing((offset & -grain) >> shift_, RoundUp(offset + nbytes, grain) >> shift_, most >> shift_) << shift_;
}

void PageTable::Reserve(int64_t end, int64_t grain) {
  int64_t last = RoundUp(end, grain) >> shift_;
  if (huge_) asked_.Reserve((last << shift_) / kHugePage);
  if (last > static_cast<int64_t>(words_.size()) * 64) words_.resize(last / 64 + 1);
}

void PageTable::Commit(int64_t offset, int64_t nbytes, int64_t grain, PageRecycler* recycler) {
  int64_t missing = Missing(offset, nbytes, grain);
  if (missing == 0) return;
  int64_t first = (offset & -grain) >> shift_;
  int64_t last = RoundUp(offset + nbytes, grain) >> shift_;
  Reserve(offset + nbytes, grain);
  if (!recycler->empty()) {
    auto move = [recycler](char* to, int64_t bytes) { recycler->MoveTo(to, bytes); };
    auto move_later = [recycler](char* to, int64_t bytes) { recycler->MoveLater(to, bytes); };
    // what the block has of a page in which it ends is moved now: another block may have the rest, and write it, soon
    bool later = missing > kMovedAtOnce;
    int64_t begin = later ? std::min(RoundUp(offset, grain) >> shift_, last) : last;
    int64_t end = std::max(((offset + nbytes) & -grain) >> shift_, begin);
    ForMissing(first, begin, move);
    ForMissing(begin, end, move_later);
    ForMissing(end, last, move);
  } else if (!huge_ || missing != (last - first) << shift_ || !WantHuge(base_ + (first << shift_), missing, recycler)) {
    WantPages(offset, nbytes, recycler);
  }
  PageSet::ForWords(first, last, [this](int64_t word, uint64_t mask) { words_[word] |= mask; });
  ++commits;
  committed += missing;
}

int64_t PageTable::Decommit(int64_t start, int64_t end, PageRecycler* recycler) {
  int64_t first = start >> shift_;
  int64_t last = std::min<int64_t>(end >> shift_, static_cast<int64_t>(words_.size()) * 64);
  int64_t given = 0;
  while (last > first) {
    if (!backed(last - 1)) {
      bool none = last % 64 == 0 && last - first >= 64 && words_[(last >> 6) - 1] == 0;
      last -= none ? 64 : 1;
      continue;
    }
    int64_t run_end = last;
    while (last > first && backed(last - 1)) --last;
    PageSet::ForWords(last, run_end, [this](int64_t word, uint64_t mask) { words_[word] &= ~mask; });
    ForgoHuge(last, run_end, recycler);
    PageRun run{base_ + (last << shift_), (run_end - last) << shift_};
    if (recycler != nullptr) {
      recycler->Add(run);
    } else {
      GiveBackPages(&run, 1);
    }
    given += run.nbytes;
  }
  decommits += given > 0;
  decommitted += given;
  return given;
}

// What is missing of [offset, offset + nbytes), if it will be written.
void PageTable::WantPages(int64_t offset, int64_t nbytes, PageRecycler* recycler) {
  ForMissing(offset >> shift_, RoundUp(offset + nbytes, unit_) >> shift_, [&](char* base, int64_t run) {
    if (touches_.Expected(base + run - unit_, run)) recycler->WantPages(base, run - unit_);
  });
}

// For the whole huge pages of a run of which nothing is backed; false where there is none.
bool PageTable::WantHuge(char* base, int64_t nbytes, PageRecycler* recycler) {
  int64_t first = RoundUp(base - base_, kHugePage) / kHugePage, last = (base - base_ + nbytes) / kHugePage;
  if (first < last && recycler->WantHuge(base_ + first * kHugePage, (last - first) * kHugePage)) {
    asked_.Insert(first, last);
    return true;
  }
  return false;
}

// For those that a run of units lies in.
void PageTable::ForgoHuge(int64_t first, int64_t last, PageRecycler* recycler) {
  int64_t from = (first << shift_) / kHugePage, to = RoundUp(last << shift_, kHugePage) / kHugePage;
  asked_.RunsIn(from, to, [&](int64_t begin, int64_t end) {
    asked_.Erase(begin, end);
    if (recycler != nullptr) {
      recycler->ForgoHuge(base_ + begin * kHugePage, (end - begin) * kHugePage);
    } else {
      ForgoHugePages(base_ + begin * kHugePage, (end - begin) * kHugePage);
    }
    return true;
  });
}

// Stops where `most` or more are missing.
int64_t PageTable::CountMissing(int64_t first, int64_t last, int64_t most) const {
  int64_t known = std::clamp(static_cast<int64_t>(words_.size()) * 64, first, last);
  int64_t count = last - known;
  for (int64_t word = first >> 6; first < known && word << 6 < known && count < most; ++word) {
    uint64_t mask = WordMask(std::max<int64_t>(first - (word << 6), 0), std::min<int64_t>(known - (word << 6), 64));
    uint64_t missing = mask & ~words_[word];
    if (missing != 0) count += CountBits(missing);
  }
  return count;
}

}  // namespace symalloc

#include "pool/paged_ranges.h"

#include <algorithm>
#include <string>
#include <utility>

#include "pool/out_of_memory_report.h"
#include "pool/sizes.h"
#include "pool/system_limits.h"

namespace symalloc {

namespace {

constexpr int64_t kLeastCapacity = 1 << 26;
constexpr int64_t kLeastStep = 1 << 26;
constexpr int kMostVisited = 4096;       // free intervals, in search of pages of the system at a time
constexpr char kFreeAlready[] = "what is freed is free already, in whole or in part";

}  // namespace

// Makes room in the books for blocks in [0, end): to take them, to back them and to free them cannot fail then, but for
// want of room in the free list, which changes nothing.
void PagedRanges::Range::Prepare(int64_t end, int64_t grain) {
  Reach(end);
  for (PageSet* each : {&givable, &fragments}) each->Reserve(EndTouched(end));
  pages.Reserve(end, grain);
}

// The pages that touch the block are not wholly free any more.
void PagedRanges::Range::Take(int64_t offset, int64_t size) {
  free_list.Take(offset, size);
  int64_t first = offset >> shift, last = EndTouched(offset + size);
  for (int64_t edge : {first, last - 1}) {
    if (givable.Has(edge)) fragments.Insert(edge, edge + 1);
  }
  givable.Erase(first, last);
}

// Undoes `Take`.
void PagedRanges::Range::TakeBack(int64_t offset, int64_t size) {
  FreeList::Interval merged;
  free_list.Put(offset, size, &merged);
  int64_t last = EndTouched(offset + size);
  for (int64_t at = offset >> shift; at < last && at * page < pages.end(); ++at) {
    bool free = at * page >= merged.start && (at + 1) * page <= merged.end;
    if (free && pages.Missing(at * page, page, page) < page) givable.Insert(at, at + 1);
    if (!free) fragments.Insert(at, at + 1);
  }
}

// Backs what a block lacks.
void PagedRanges::Range::Back(const Place& place, int64_t size, PageRecycler* recycler) {
  if (place.missing == 0) return;
  int64_t first = place.offset >> shift, last = EndTouched(place.offset + size);
  fragments.Insert(first, first + 1);
  fragments.Insert(last - 1, last);
  pages.Commit(place.offset, size, place.grain, recycler);
}

// Notes that [from, to) has become free in page `at`, if it holds a page of the system.
void PagedRanges::Range::NoteFragments(int64_t from, int64_t to, int64_t at) {
  if (fragments.Has(at)) return;
  from = std::max(from, at * page);
  to = std::min(to, (at + 1) * page);
  if (RoundUp(from, pages.unit()) + pages.unit() <= to) fragments.Insert(at, at + 1);
}

// False where part of it is free.  Among the pages that touch a block that has become free, notes those that are wholly
// free: all are backed.
bool PagedRanges::Range::Put(int64_t offset, int64_t size) {
  FreeList::Interval merged;
  if (!free_list.Put(offset, size, &merged)) return false;
  int64_t first = std::max(EndTouched(merged.start), offset >> shift);
  int64_t last = std::min(merged.end >> shift, EndTouched(offset + size));
  if (first < last) givable.Insert(first, last);
  int64_t lowest = offset >> shift, highest = EndTouched(offset + size) - 1;
  if (lowest < first) NoteFragments(merged.start, merged.end, lowest);
  if (highest >= last) NoteFragments(merged.start, merged.end, highest);
  return true;
}

// Gives back free pages, the highest first; the bytes.
int64_t PagedRanges::Range::DecommitFree(int64_t nbytes, PageRecycler* recycler, Trimming* trimming) {
  const int64_t cut = trimming == nullptr || !trimming->aligned ? page : std::max(page, kHugePage);
  int64_t given = 0;
  while (given < nbytes) {
    int64_t last = givable.Highest() + 1;
    if (last == 0) break;
    int64_t first = last - 1;
    auto wanted = [&] { return given + (last - first) * page < nbytes || first * page % cut != 0; };
    while (first > 0 && wanted() && givable.Has(first - 1)) --first;
    givable.Erase(first, last);
    given += pages.Decommit(first * page, last * page, recycler);
    if (trimming == nullptr) continue;
    if (last * page == trimming->start) --pages.decommits;
    trimming->start = first * page;
  }
  return given;
}

// Gives back free pages of the system within pages of which none is wholly free, the highest first, and what is free in a
// page at once, but nothing of the pages [kept, kept_end); the bytes.
int64_t PagedRanges::Range::DecommitFragments(int64_t nbytes, int64_t kept, int64_t kept_end, PageRecycler* recycler) {
  int64_t given = 0;
  while (given < nbytes) {
    int64_t at = fragments.Highest();
    if (at == PageSet::kNone) break;
    fragments.Erase(at, at + 1);
    if (at >= kept && at < kept_end) continue;
    free_list.Within(at * page, (at + 1) * page, [&](int64_t from, int64_t to) {
      given += pages.Decommit(RoundUp(from, pages.unit()), to & -pages.unit(), recycler);
    });
  }
  return given;
}

// Gives back free pages of the system that lie in intervals below `below`, which follows; the bytes.
int64_t PagedRanges::Range::DecommitUnits(int64_t nbytes, int64_t* below, PageRecycler* recycler) {
  int64_t given = 0;
  int visited = 0;
  bool all = true;
  free_list.Downwards([&](int64_t start, int64_t end) {
    if (start >= *below) return true;
    all = given < nbytes && ++visited <= kMostVisited;
    if (!all) return false;
    given += pages.Decommit(RoundUp(start, pages.unit()), end & -pages.unit(), recycler);
    *below = start;
    return true;
  });
  if (all) *below = 0;
  return given;
}

// In large steps, so that blocks that come and go never get here.
void PagedRanges::Range::MakeReachable(int64_t end) {
  end = RoundUp(end, page);
  int64_t step = std::min(std::max(RoundUp(end + end / 4, page), end + kLeastStep), capacity);
  for (int64_t to : {step, end}) {
    if (!slack.Reach(to) || !MakeWritable(base + writable, to - writable)) continue;
    writable = to;
    return;
  }
  throw OutOfMemory("the system refuses " + std::to_string(end - writable) +
                    " bytes more: see ulimit -d, and vm.overcommit_memory");
}

PagedRanges::PagedRanges(const Options& options, std::atomic<uint32_t>* bin_most)
    : limit(options.limit),
      soft_numerator_(options.soft_numerator),
      soft_denominator_(options.soft_denominator),
      page_(options.page),
      capacity_(RangeCapacity(options)),
      count_(options.separate_escaping ? 2 : 1),
      bin_most_(*bin_most) {
  // a process may have been given less address space than a machine has
  while (capacity_ == 0 || !Reserve(options)) {
    capacity_ = capacity_ / 2 & -page_;
    if (capacity_ < kLeastCapacity) {
      throw OutOfMemory("no " + std::to_string(kLeastCapacity) + " bytes of address space are free for a pool\n"
                        "  help: see ulimit -v; a limit for each pool bounds what it reserves");
    }
  }
}

PagedRanges::~PagedRanges() { ReleaseAll(); }

bool PagedRanges::Reserve(const Options& options) {
  while (most_aligned_ > kHugePage && most_aligned_ > capacity_ / 8) most_aligned_ /= 2;
  for (int i = 0; i < count_; ++i) {
    bases_[i] = ReserveAddresses(capacity_, most_aligned_);
    if (bases_[i] == nullptr) {
      ReleaseAll();
      return false;
    }
    ranges_.emplace_back(bases_[i], capacity_, options);
    if (!ranges_.back().slack.Reserve(capacity_)) {
      ReleaseAll();
      return false;
    }
  }
  return true;
}

void PagedRanges::ReleaseAll() {
  for (Range& range : ranges_) {
    ReleaseAddresses(range.base, capacity_);
    range.slack.Release();
  }
  ranges_.clear();
}

int64_t PagedRanges::Address(const void* block) const {
  int which = RangeOf(block);
  if (which < 0) throw BadFree("what is asked for is no block of this pool");
  return which * capacity_ + (static_cast<const char*>(block) - bases_[which]);
}

char* PagedRanges::TakeWithinLimits(int which, int64_t size, int64_t align, int64_t in_use, PageRecycler* recycler) {
  Range& range = ranges_[which];
  int64_t offset = FindPlace(range, size, align);
  if (offset == kNone) return nullptr;
  int64_t missing = range.pages.Missing(offset, size, page_);
  return Over(missing, size, in_use) ? nullptr : TakeAt(which, {offset, missing, page_}, size, recycler);
}

char* PagedRanges::TakeBacked(int which, int64_t size, int64_t align, PageRecycler* recycler) {
  int64_t offset = Crowded(which) ? kNone : ranges_[which].FindBacked(size, align);
  return offset == kNone ? nullptr : TakeAt(which, {offset, 0, page_}, size, recycler);
}

char* PagedRanges::TakeMakingRoom(int which, int64_t size, int64_t align, int64_t in_use, PageRecycler* recycler) {
  Range& range = ranges_[which];
  Place place = LeastMissing(which, size, align, in_use);
  if (place.offset == kNone) return nullptr;
  range.Prepare(place.offset + size, place.grain);
  range.Take(place.offset, size);  // what the block covers is not given back for it
  if (place.missing > 0 && !MakeRoom(which, place, size, in_use, recycler)) {
    range.TakeBack(place.offset, size);
    return nullptr;
  }
  range.Back(place, size, recycler);
  NoteCrowd(which);
  return range.base + place.offset;
}

void PagedRanges::RequirePlace(int which, int64_t size, int64_t align) const {
  const FreeList& free_list = ranges_[which].free_list;
  if (free_list.Find(size, align) == kNone) {
    throw OutOfMemory(NoAddressSpace(size, free_list.Largest(), capacity_));
  }
}

PagedRanges::Place PagedRanges::Tightest(int which, int64_t size, int64_t align) {
  RequirePlace(which, size, align);
  Trim();
  return ranges_[which].Tightest(size, align, page_);
}

PagedRanges::Place PagedRanges::TightestOfUnits(int which, int64_t size, int64_t align) {
  RequirePlace(which, size, align);
  Trim();
  UnitTrimming trimming;
  while (TrimUnits(INT64_MAX, &trimming, nullptr)) continue;
  return ranges_[which].Tightest(size, align, ranges_[which].pages.unit());
}

bool PagedRanges::TrimUnits(int64_t nbytes, UnitTrimming* trimming, PageRecycler* recycler) {
  if (trimming->below == 0) {
    ++trimming->which;
    trimming->below = INT64_MAX;
  }
  if (trimming->which == count_) return false;
  ranges_[trimming->which].DecommitUnits(nbytes, &trimming->below, recycler);
  return true;
}

char* PagedRanges::TakeAt(int which, const Place& place, int64_t size, PageRecycler* recycler) {
  Range& range = ranges_[which];
  range.Prepare(place.offset + size, place.grain);
  range.Take(place.offset, size);
  range.Back(place, size, recycler);
  NoteCrowd(which);
  return range.base + place.offset;
}

void PagedRanges::CheckAllocated(const void* block, int64_t size) const {
  const Range& range = ranges_[RangeOf(block)];
  int64_t offset = static_cast<const char*>(block) - range.base;
  if (offset + size > capacity_ || range.free_list.Overlaps(offset, size)) throw BadFree(kFreeAlready);
}

void PagedRanges::Free(const void* block, int64_t size) {
  int which = RangeOf(block);
  Range& range = ranges_[which];
  int64_t offset = static_cast<const char*>(block) - range.base;
  if (offset + size > capacity_ || !range.Put(offset, size)) throw BadFree(kFreeAlready);
  NoteCrowd(which);
}

int64_t PagedRanges::Trim() {
  int64_t given = 0;
  for (Range& range : ranges_) given += range.DecommitFree(range.pages.reserved(), nullptr);
  return given;
}

int64_t PagedRanges::TrimPart(int64_t nbytes, Trimming* trimming, PageRecycler* recycler) {
  for (; trimming->which < count_; *trimming = {trimming->which + 1, kNone, trimming->aligned}) {
    int64_t given = ranges_[trimming->which].DecommitFree(nbytes, recycler, trimming);
    if (given > 0) return given;
  }
  return 0;
}

int64_t PagedRanges::reserved() const {
  int64_t reserved = 0;
  for (const Range& range : ranges_) reserved += range.pages.reserved();
  return reserved;
}

void PagedRanges::CountPaging(Statistics* statistics) const {
  for (const Range& range : ranges_) {
    statistics->commits += range.pages.commits;
    statistics->committed += range.pages.committed;
    statistics->decommits += range.pages.decommits;
    statistics->decommitted += range.pages.decommitted;
  }
}

int64_t PagedRanges::LargestBacked(int which) const {
  const Range& range = ranges_[which];
  int64_t largest = 0, unit = range.pages.unit();
  range.free_list.Downwards([&](int64_t start, int64_t end) {
    int64_t first = std::min(RoundUp(start, unit), end), last = std::max(end & -unit, start);
    for (auto [from, to] : {std::pair(start, first), std::pair(last, end)}) {
      if (to > from && range.pages.Missing(from, to - from, unit) == 0) largest = std::max(largest, to - from);
    }
    return true;
  });
  return largest;
}

std::vector<int64_t> PagedRanges::Layout() const {
  std::vector<int64_t> layout;
  for (const Range& range : ranges_) {
    std::vector<int64_t> intervals, runs;
    range.free_list.Downwards([&](int64_t start, int64_t end) {
      intervals.insert(intervals.end(), {start, end});
      return true;
    });
    range.pages.Runs([&](int64_t start, int64_t end) { runs.insert(runs.end(), {start, end}); });
    for (const auto* each : {&intervals, &runs}) layout.push_back(static_cast<int64_t>(each->size()) / 2);
    for (const auto* each : {&intervals, &runs}) layout.insert(layout.end(), each->begin(), each->end());
  }
  return layout;
}

}  // namespace symalloc

#include "pool/paged_range.h"

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

PagedRange::PagedRange(const Options& options, std::atomic<uint32_t>* bin_most)
    : limit(options.limit),
      soft_numerator_(options.soft_numerator),
      soft_denominator_(options.soft_denominator),
      page_(options.page),
      shift_(__builtin_ctzll(options.page)),
      capacity_(Reserve(options)),
      free_list_(capacity_),
      pages_(base_, std::min(SystemPage(), options.page), options.huge),
      bin_most_(*bin_most) {}

PagedRange::~PagedRange() {
  ReleaseAddresses(base_, capacity_);
  slack_.Release();
}

// Reserves the addresses; how many.  A process may have been given less address space than a machine has.
int64_t PagedRange::Reserve(const Options& options) {
  int64_t capacity = RangeCapacity(options);
  while (capacity == 0 || !ReserveBytes(capacity)) {
    capacity = capacity / 2 & -page_;
    if (capacity < kLeastCapacity) {
      throw OutOfMemory("no " + std::to_string(kLeastCapacity) + " bytes of address space are free for a pool\n"
                        "  help: see ulimit -v; a limit for each pool bounds what it reserves");
    }
  }
  return capacity;
}

bool PagedRange::ReserveBytes(int64_t capacity) {
  while (most_aligned_ > kHugePage && most_aligned_ > capacity / 8) most_aligned_ /= 2;
  base_ = ReserveAddresses(capacity, most_aligned_);
  if (base_ == nullptr) return false;
  if (slack_.Reserve(capacity)) return true;
  ReleaseAddresses(base_, capacity);
  return false;
}

// Makes room in the books for blocks in [0, end): to take them, to back them and to free them cannot fail then, but for
// want of room in the free list, which changes nothing.
void PagedRange::Prepare(int64_t end, int64_t grain) {
  Reach(end);
  for (PageSet* each : {&givable_, &fragments_}) each->Reserve(EndTouched(end));
  pages_.Reserve(end, grain);
}

// The pages that touch the block are not wholly free any more.
void PagedRange::TakePlace(int64_t offset, int64_t size) {
  free_list_.Take(offset, size);
  int64_t first = offset >> shift_, last = EndTouched(offset + size);
  for (int64_t edge : {first, last - 1}) {
    if (givable_.Has(edge)) fragments_.Insert(edge, edge + 1);
  }
  givable_.Erase(first, last);
}

// Undoes `TakePlace`.
void PagedRange::TakeBack(int64_t offset, int64_t size) {
  FreeList::Interval merged;
  free_list_.Put(offset, size, &merged);
  int64_t last = EndTouched(offset + size);
  for (int64_t at = offset >> shift_; at < last && at * page_ < pages_.end(); ++at) {
    bool free = at * page_ >= merged.start && (at + 1) * page_ <= merged.end;
    if (free && pages_.Missing(at * page_, page_, page_) < page_) givable_.Insert(at, at + 1);
    if (!free) fragments_.Insert(at, at + 1);
  }
}

// Backs what a block lacks.
void PagedRange::Back(const Place& place, int64_t size, PageRecycler* recycler) {
  if (place.missing == 0) return;
  int64_t first = place.offset >> shift_, last = EndTouched(place.offset + size);
  fragments_.Insert(first, first + 1);
  fragments_.Insert(last - 1, last);
  pages_.Commit(place.offset, size, place.grain, recycler);
}

// Notes that [from, to) has become free in page `at`, if it holds a page of the system.
void PagedRange::NoteFragments(int64_t from, int64_t to, int64_t at) {
  if (fragments_.Has(at)) return;
  from = std::max(from, at * page_);
  to = std::min(to, (at + 1) * page_);
  if (RoundUp(from, pages_.unit()) + pages_.unit() <= to) fragments_.Insert(at, at + 1);
}

// False where part of it is free.  Among the pages that touch a block that has become free, notes those that are wholly
// free: all are backed.
bool PagedRange::PutPlace(int64_t offset, int64_t size) {
  FreeList::Interval merged;
  if (!free_list_.Put(offset, size, &merged)) return false;
  int64_t first = std::max(EndTouched(merged.start), offset >> shift_);
  int64_t last = std::min(merged.end >> shift_, EndTouched(offset + size));
  if (first < last) givable_.Insert(first, last);
  int64_t lowest = offset >> shift_, highest = EndTouched(offset + size) - 1;
  if (lowest < first) NoteFragments(merged.start, merged.end, lowest);
  if (highest >= last) NoteFragments(merged.start, merged.end, highest);
  return true;
}

int64_t PagedRange::GiveBack(int64_t nbytes, PageRecycler* recycler, Trimming* trimming) {
  const int64_t cut = trimming == nullptr || !trimming->aligned ? page_ : std::max(page_, kHugePage);
  int64_t given = 0;
  while (given < nbytes) {
    int64_t last = givable_.Highest() + 1;
    if (last == 0) break;
    int64_t first = last - 1;
    auto wanted = [&] { return given + (last - first) * page_ < nbytes || first * page_ % cut != 0; };
    while (first > 0 && wanted() && givable_.Has(first - 1)) --first;
    givable_.Erase(first, last);
    given += pages_.Decommit(first * page_, last * page_, recycler);
    if (trimming == nullptr) continue;
    if (last * page_ == trimming->start) --pages_.decommits;
    trimming->start = first * page_;
  }
  return given;
}

void PagedRange::GiveBackUnits(int64_t nbytes, int64_t* below, PageRecycler* recycler) {
  int64_t given = 0;
  int visited = 0;
  bool all = true;
  free_list_.Downwards([&](int64_t start, int64_t end) {
    if (start >= *below) return true;
    all = given < nbytes && ++visited <= kMostVisited;
    if (!all) return false;
    given += pages_.Decommit(RoundUp(start, pages_.unit()), end & -pages_.unit(), recycler);
    *below = start;
    return true;
  });
  if (all) *below = 0;
}

// In large steps, so that blocks that come and go never get here.
void PagedRange::MakeReachable(int64_t end) {
  end = RoundUp(end, page_);
  int64_t step = std::min(std::max(RoundUp(end + end / 4, page_), end + kLeastStep), capacity_);
  for (int64_t to : {step, end}) {
    if (!slack_.Reach(to) || !MakeWritable(base_ + writable_, to - writable_)) continue;
    writable_ = to;
    return;
  }
  throw OutOfMemory("the system refuses " + std::to_string(end - writable_) +
                    " bytes more: see ulimit -d, and vm.overcommit_memory");
}

char* PagedRange::TakeWithinLimits(int64_t size, int64_t align, int64_t in_use, PageRecycler* recycler) {
  int64_t offset = FindPlace(size, align);
  if (offset == kNone) return nullptr;
  int64_t missing = pages_.Missing(offset, size, page_);
  return Over(missing, size, in_use) ? nullptr : TakeAt({offset, missing, page_}, size, recycler);
}

char* PagedRange::TakeBacked(int64_t size, int64_t align, PageRecycler* recycler) {
  int64_t offset = Crowded() ? kNone : FindBacked(size, align);
  return offset == kNone ? nullptr : TakeAt({offset, 0, page_}, size, recycler);
}

char* PagedRange::TakeMakingRoom(int64_t size, int64_t align, int64_t in_use, PageRecycler* recycler) {
  Place place = LeastMissing(size, align, in_use);
  if (place.offset == kNone) return nullptr;
  Prepare(place.offset + size, place.grain);
  TakePlace(place.offset, size);  // what the block covers is not given back for it
  if (place.missing > 0 && !MakeRoom(place, size, in_use, recycler)) {
    TakeBack(place.offset, size);
    return nullptr;
  }
  Back(place, size, recycler);
  NoteCrowd();
  return base_ + place.offset;
}

void PagedRange::RequirePlace(int64_t size, int64_t align) const {
  if (free_list_.Find(size, align) == kNone) throw OutOfMemory(NoAddressSpace(size, free_list_.Largest(), capacity_));
}

PagedRange::Place PagedRange::Tightest(int64_t size, int64_t align, bool units) {
  RequirePlace(size, align);
  GiveBack(reserved(), nullptr);
  for (int64_t below = units ? INT64_MAX : 0; below > 0;) GiveBackUnits(INT64_MAX, &below, nullptr);
  return TightestBy(units ? pages_.unit() : page_, size, align);
}

char* PagedRange::TakeAt(const Place& place, int64_t size, PageRecycler* recycler) {
  Prepare(place.offset + size, place.grain);
  TakePlace(place.offset, size);
  Back(place, size, recycler);
  NoteCrowd();
  return base_ + place.offset;
}

void PagedRange::CheckAllocated(const void* block, int64_t size) const {
  int64_t offset = Offset(block);
  if (offset + size > capacity_ || free_list_.Overlaps(offset, size)) throw BadFree(kFreeAlready);
}

void PagedRange::Free(const void* block, int64_t size) {
  int64_t offset = Offset(block);
  if (offset + size > capacity_ || !PutPlace(offset, size)) throw BadFree(kFreeAlready);
  NoteCrowd();
}

void PagedRange::CountPaging(Statistics* statistics) const {
  statistics->commits = pages_.commits;
  statistics->committed = pages_.committed;
  statistics->decommits = pages_.decommits;
  statistics->decommitted = pages_.decommitted;
}

int64_t PagedRange::LargestBacked() const {
  int64_t largest = 0, unit = pages_.unit();
  free_list_.Downwards([&](int64_t start, int64_t end) {
    int64_t first = std::min(RoundUp(start, unit), end), last = std::max(end & -unit, start);
    for (auto [from, to] : {std::pair(start, first), std::pair(last, end)}) {
      if (to > from && pages_.Missing(from, to - from, unit) == 0) largest = std::max(largest, to - from);
    }
    return true;
  });
  return largest;
}

std::vector<int64_t> PagedRange::Layout() const {
  std::vector<int64_t> intervals, runs;
  free_list_.Downwards([&](int64_t start, int64_t end) {
    intervals.insert(intervals.end(), {start, end});
    return true;
  });
  pages_.Runs([&](int64_t start, int64_t end) { runs.insert(runs.end(), {start, end}); });
  std::vector<int64_t> layout{static_cast<int64_t>(intervals.size()) / 2, static_cast<int64_t>(runs.size()) / 2};
  for (const auto* each : {&intervals, &runs}) layout.insert(layout.end(), each->begin(), each->end());
  return layout;
}

}  // namespace symalloc

// The address ranges of a pool, and the policy of backing their pages: tests/pool/reference/reference_pool.py is the
// reference for every decision.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "pool/free_list.h"
#include "pool/options.h"
#include "pool/os_memory.h"
#include "pool/page_recycler.h"
#include "pool/page_set.h"
#include "pool/page_table.h"
#include "pool/slack_table.h"
#include "pool/system_limits.h"

namespace symalloc {

// Offsets and sizes are bytes.  All but `capacity`, `RangeOf` and `Address` is guarded by the pool's mutex.
class PagedRanges {
 public:
  static constexpr int64_t kNone = FreeList::kNone;

  // Throws OutOfMemory where there is no address space.  A range may get less than `options.capacity`.  `bin_most`
  // outlives this: bytes, lowered below those of blocks that may have slack once there may be any.
  PagedRanges(const Options& options, std::atomic<uint32_t>* bin_most);
  ~PagedRanges();
  PagedRanges(const PagedRanges&) = delete;
  PagedRanges& operator=(const PagedRanges&) = delete;

  int64_t capacity() const { return capacity_; }
  const char* base(int which) const { return bases_[which]; }
  int64_t most_aligned() const { return most_aligned_; }

  // The range that `block` lies in, or -1.
  int RangeOf(const void* block) const {
    for (int i = 0; i < count_; ++i) {
      uint64_t offset = reinterpret_cast<uint64_t>(block) - reinterpret_cast<uint64_t>(bases_[i]);
      if (offset < static_cast<uint64_t>(capacity_)) return i;
    }
    return -1;
  }

  // range * capacity + offset: an address of the reference.  Throws BadFree.
  int64_t Address(const void* block) const;

  // Thrown where the limit, or the only place of a block, waits for pages in limbo; nothing has changed.
  struct Awaited {};

  // Takes the lowest free place of a range and backs what is missing there; nullptr where there is none, or that
  // breaks a limit.  `in_use`: bytes that are handed out and wait in no cache of the thread that asks.  `recycler` gets
  // what is left to do before the block may be written.
  char* TakeWithinLimits(int which, int64_t size, int64_t align, int64_t in_use, PageRecycler* recycler);

  // Takes a place where every page of the block is backed, in the smallest interval that has one; nullptr where there is
  // none, or many intervals are free.
  char* TakeBacked(int which, int64_t size, int64_t align, PageRecycler* recycler);

  // As `TakeWithinLimits`, but free pages are given back to make room; nullptr where even that breaks the hard limit.
  char* TakeMakingRoom(int which, int64_t size, int64_t align, int64_t in_use, PageRecycler* recycler);

  // A place for a block, and the bytes of pages that it lacks.
  struct Place {
    int64_t offset = kNone;
    int64_t missing = 0;
    int64_t grain = 0;  // in which they are backed
  };

  // Throws OutOfMemory where no free place is large enough for a block.
  void RequirePlace(int which, int64_t size, int64_t align) const;

  // Where a block costs the fewest pages, once all free pages are given back.  Throws OutOfMemory where no free place is
  // large enough.
  Place Tightest(int which, int64_t size, int64_t align);

  // The same in pages of the system, once all of those are given back.
  Place TightestOfUnits(int which, int64_t size, int64_t align);

  bool Fits(const Place& place) const { return reserved() + place.missing <= limit; }

  char* TakeAt(int which, const Place& place, int64_t size, PageRecycler* recycler);

  // Both throw BadFree where part of the block is free already.
  void Free(const void* block, int64_t size);
  void CheckAllocated(const void* block, int64_t size) const;

  // Gives back all free pages; their bytes.
  int64_t Trim();

  // How far a trim has got that goes on in parts; the parts of a run of pages count as one operation.
  struct Trimming {
    int which = 0;
    int64_t start = kNone;  // of the run that was begun
    bool aligned = false;   // cuts between huge pages
  };

  // Hands free pages to `recycler`, about `nbytes` bytes, the highest first, a range after the other; their bytes, 0 where
  // there are none left.
  int64_t TrimPart(int64_t nbytes, Trimming* trimming, PageRecycler* recycler);

  // How far giving back the free pages of the system has got.
  struct UnitTrimming {
    int which = 0;
    int64_t below = INT64_MAX;
  };

  // Hands free pages of the system to `recycler`, about `nbytes` bytes, those of some free intervals; false where all has
  // been gone through.
  bool TrimUnits(int64_t nbytes, UnitTrimming* trimming, PageRecycler* recycler);

  // True where the pool's pages consist of several of the system.
  bool has_units() const { return ranges_[0].pages.unit() < page_; }

  // Bytes of the pages that are wholly free and backed.
  int64_t free_pages() const {
    int64_t pages = 0;
    for (const Range& range : ranges_) pages += range.givable.count();
    return pages * page_;
  }

  // Bytes backed, but for those in limbo.
  int64_t reserved() const;
  void CountPaging(Statistics* statistics) const;

  // True where the free list of a range is so long that a place should be chosen with care.
  bool Crowded(int which) const { return ranges_[which].Crowded(); }

  // True where a thread may serve blocks of a range with memory that is a little larger; without the mutex.
  bool near_fits(int which) const { return near_fits_[which].load(std::memory_order_relaxed); }

  // True once it has been; without the mutex.
  bool had_near_fits() const { return had_near_fits_.load(std::memory_order_relaxed); }

  SlackTable& slack(int which) { return ranges_[which].slack; }

  // From now on memory is too scarce for slack.
  void EndNearFits() {
    scarce_ = true;
    for (auto& each : near_fits_) each.store(false, std::memory_order_relaxed);
  }
  bool scarce() const { return scarce_; }

  // Frees the slack of all blocks, and calls freed(nbytes) for each.  Nobody may be at any cache.
  template <typename Freed>
  void FreeSlack(Freed freed) {
    for (int i = 0; i < count_; ++i) {
      ranges_[i].slack.TakeAll([&](int64_t offset, int64_t nbytes) {
        Free(bases_[i] + offset, nbytes);
        freed(nbytes);
      });
    }
  }

  // The largest free piece that lies in a backed page, all wholly free pages of the system having been given back.
  int64_t LargestBacked(int which) const;

  // For each range: the number of its free intervals and of its runs of backed pages, then start and end of each.
  std::vector<int64_t> Layout() const;

  int64_t limit;          // bytes, -1: none
  int64_t peak_used = 0;  // which the soft limit follows
  Limbo limbo;

 private:
  struct Range {
    Range(char* base, int64_t capacity, const Options& options)
        : base(base),
          capacity(capacity),
          page(options.page),
          shift(__builtin_ctzll(options.page)),
          free_list(capacity),
          pages(base, std::min(SystemPage(), options.page), options.huge) {}
    void Prepare(int64_t end, int64_t grain);
    void Take(int64_t offset, int64_t size);
    bool Put(int64_t offset, int64_t size);
    void TakeBack(int64_t offset, int64_t size);
    void Back(const Place& place, int64_t size, PageRecycler* recycler);
    void NoteFragments(int64_t from, int64_t to, int64_t at);
    int64_t DecommitFree(int64_t nbytes, PageRecycler* recycler, Trimming* trimming = nullptr);
    int64_t DecommitFitting(int64_t nbytes, PageRecycler* recycler);
    int64_t DecommitFragments(int64_t nbytes, int64_t kept, int64_t kept_end, PageRecycler* recycler);
    int64_t DecommitUnits(int64_t nbytes, int64_t* below, PageRecycler* recycler);
    template <typename Visit>
    void ForPlaces(const FreeList::Interval& free, int64_t size, int64_t align, Visit visit) const;
    int64_t FindBacked(int64_t size, int64_t align) const;
    Place Tightest(int64_t size, int64_t align, int64_t grain) const;

    // Makes the bytes below `end` writable; throws OutOfMemory where the system refuses.
    void Reach(int64_t end) {
      if (end > writable) MakeReachable(end);
    }
    void MakeReachable(int64_t end);

    bool Crowded() const { return free_list.count() > kCrowd; }

    // The first page that begins at or beyond `end`.
    int64_t EndTouched(int64_t end) const { return (end + page - 1) >> shift; }

    char* base;
    int64_t capacity, page;
    int shift;  // of a page
    int64_t writable = 0;  // bytes
    FreeList free_list;
    PageTable pages;
    SlackTable slack;
    PageSet givable;    // pages of `page` bytes that are wholly free and at least partly backed
    PageSet fragments;  // others that hold free backed pages of the system, and more
  };

  static constexpr int64_t kCrowd = 128;  // free intervals

  bool Reserve(const Options& options);
  int64_t FindPlace(const Range& range, int64_t size, int64_t align) const;
  Place LeastMissing(int which, int64_t size, int64_t align, int64_t in_use) const;
  int64_t FindClear(const Range& range, int64_t size, int64_t align) const;
  int64_t PastLimbo(const Range& range, int64_t offset, int64_t size) const;
  void ReleaseAll();
  void NoteCrowd(int which) {
    bool near = !scarce_ && Crowded(which);
    near_fits_[which].store(near, std::memory_order_relaxed);
    if (near && !had_near_fits()) BeginNearFits();
  }
  void BeginNearFits() {
    had_near_fits_.store(true, std::memory_order_relaxed);
    if (bin_most_ >= SlackTable::kLeast) bin_most_.store(SlackTable::kLeast - kGrain, std::memory_order_relaxed);
  }
  int64_t SoftLimit(int64_t size, int64_t in_use) const;
  bool Over(int64_t missing, int64_t size, int64_t in_use) const;
  bool MakeRoom(int which, const Place& place, int64_t size, int64_t in_use, PageRecycler* recycler);
  void GiveBack(int which, int64_t nbytes, PageRecycler* recycler);
  int64_t GiveBackFragments(int which, int64_t nbytes, const Place& place, int64_t size, PageRecycler* recycler);
  void BackAhead(Range* range, int64_t nbytes, PageRecycler* recycler);

  const int64_t soft_numerator_, soft_denominator_, page_;
  int64_t capacity_;
  int64_t most_aligned_ = int64_t{1} << 30;  // less where the capacity is small
  int count_;
  char* bases_[2];
  std::vector<Range> ranges_;
  bool scarce_ = false;
  std::atomic<bool> near_fits_[2] = {};
  std::atomic<bool> had_near_fits_{false};
  std::atomic<uint32_t>& bin_most_;
};

}  // namespace symalloc

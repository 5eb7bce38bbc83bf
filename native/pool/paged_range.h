// The address range of a pool, and the policy of backing its pages: tests/pool/reference/reference_pool.py is the
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

// Offsets and sizes are bytes.  All but `capacity`, `base`, `Offset` and `near_fits` is guarded by the pool's mutex.
class PagedRange {
 public:
  static constexpr int64_t kNone = FreeList::kNone;

  // Throws OutOfMemory where there is no address space.  It may get less than `options.capacity`.  `bin_most` outlives
  // this: bytes, lowered below those of blocks that may have slack once there may be any.
  PagedRange(const Options& options, std::atomic<uint32_t>* bin_most);
  ~PagedRange();
  PagedRange(const PagedRange&) = delete;
  PagedRange& operator=(const PagedRange&) = delete;

  int64_t capacity() const { return capacity_; }
  const char* base() const { return base_; }
  int64_t most_aligned() const { return most_aligned_; }

  int64_t Offset(const void* block) const { return static_cast<const char*>(block) - base_; }

  // Thrown where the limit, or the only place of a block, waits for pages in limbo; nothing has changed.
  struct Awaited {};

  // Takes the lowest free place and backs what is missing there; nullptr where there is none, or that breaks a limit.
  // `in_use`: bytes that are handed out and wait in no cache of the thread that asks.  `recycler` gets what is left to do
  // before the block may be written.
  char* TakeWithinLimits(int64_t size, int64_t align, int64_t in_use, PageRecycler* recycler);

  // Takes a place where every page of the block is backed, in the smallest interval that has one; nullptr where there is
  // none, or many intervals are free.
  char* TakeBacked(int64_t size, int64_t align, PageRecycler* recycler);

  // As `TakeWithinLimits`, but free pages are given back to make room; nullptr where even that breaks the hard limit.
  char* TakeMakingRoom(int64_t size, int64_t align, int64_t in_use, PageRecycler* recycler);

  // A place for a block, and the bytes of pages that it lacks.
  struct Place {
    int64_t offset = kNone;
    int64_t missing = 0;
    int64_t grain = 0;  // in which they are backed
  };

  // Throws OutOfMemory where no free place is large enough for a block.
  void RequirePlace(int64_t size, int64_t align) const;

  // Where a block costs the fewest pages, once all free pages are given back; `units`: in pages of the system.  Throws
  // OutOfMemory where no free place is large enough.
  Place Tightest(int64_t size, int64_t align, bool units);

  bool Fits(const Place& place) const { return reserved() + place.missing <= limit; }

  char* TakeAt(const Place& place, int64_t size, PageRecycler* recycler);

  // Both throw BadFree where part of the block is free already.
  void Free(const void* block, int64_t size);
  void CheckAllocated(const void* block, int64_t size) const;

  // How far giving back free pages has got that goes on in parts; the parts of a run of pages count as one operation.
  struct Trimming {
    int64_t start = kNone;  // of the run that was begun
    bool aligned = false;   // cuts between huge pages
  };

  // Gives back about `nbytes` bytes of free pages, the highest first, by way of `recycler` where there is one; their
  // bytes, 0 where there are none left.
  int64_t GiveBack(int64_t nbytes, PageRecycler* recycler, Trimming* trimming = nullptr);

  // The same with free pages of the system that lie in intervals below `below`, which follows: 0 where all has been gone
  // through.
  void GiveBackUnits(int64_t nbytes, int64_t* below, PageRecycler* recycler);

  // True where the pool's pages consist of several of the system.
  bool has_units() const { return pages_.unit() < page_; }

  // Bytes of the pages that are wholly free and backed.
  int64_t free_pages() const { return givable_.count() * page_; }

  // Bytes backed, but for those in limbo.
  int64_t reserved() const { return pages_.reserved(); }
  void CountPaging(Statistics* statistics) const;

  // True where the free list is so long that a place should be chosen with care.
  bool Crowded() const { return free_list_.count() > kCrowd; }

  // True where a thread may serve blocks with memory that is a little larger; without the mutex.
  bool near_fits() const { return near_fits_.load(std::memory_order_relaxed); }

  // True once it has been; without the mutex.
  bool had_near_fits() const { return had_near_fits_.load(std::memory_order_relaxed); }

  SlackTable& slack() { return slack_; }

  // From now on memory is too scarce for slack.
  void EndNearFits() {
    scarce_ = true;
    near_fits_.store(false, std::memory_order_relaxed);
  }
  bool scarce() const { return scarce_; }

  // Frees the slack of all blocks, and calls freed(nbytes) for each.  Nobody may be at any cache.
  template <typename Freed>
  void FreeSlack(Freed freed) {
    slack_.TakeAll([&](int64_t offset, int64_t nbytes) {
      Free(base_ + offset, nbytes);
      freed(nbytes);
    });
  }

  // The largest free piece that lies in a backed page, all wholly free pages of the system having been given back.
  int64_t LargestBacked() const;

  // The number of free intervals and of runs of backed pages, then start and end of each.
  std::vector<int64_t> Layout() const;

  int64_t limit;          // bytes, -1: none
  int64_t peak_in_use = 0;  // which the soft limit follows
  Limbo limbo;

 private:
  static constexpr int64_t kCrowd = 128;  // free intervals

  int64_t Reserve(const Options& options);
  bool ReserveBytes(int64_t capacity);
  void Prepare(int64_t end, int64_t grain);
  void TakePlace(int64_t offset, int64_t size);
  bool PutPlace(int64_t offset, int64_t size);
  void TakeBack(int64_t offset, int64_t size);
  void Back(const Place& place, int64_t size, PageRecycler* recycler);
  void NoteFragments(int64_t from, int64_t to, int64_t at);
  void GiveBackFitting(int64_t nbytes, PageRecycler* recycler);
  int64_t GiveBackFragments(int64_t nbytes, const Place& place, int64_t size, PageRecycler* recycler);
  void BackAhead(int64_t nbytes, PageRecycler* recycler);
  template <typename Visit>
  void ForPlaces(const FreeList::Interval& free, int64_t size, int64_t align, Visit visit) const;
  int64_t FindPlace(int64_t size, int64_t align) const;
  int64_t FindBacked(int64_t size, int64_t align) const;
  int64_t FindClear(int64_t size, int64_t align) const;
  int64_t PastLimbo(int64_t offset, int64_t size) const;
  Place TightestBy(int64_t grain, int64_t size, int64_t align) const;
  Place LeastMissing(int64_t size, int64_t align, int64_t in_use) const;
  int64_t SoftLimit(int64_t size, int64_t in_use) const;
  bool Over(int64_t missing, int64_t size, int64_t in_use) const;
  bool MakeRoom(const Place& place, int64_t size, int64_t in_use, PageRecycler* recycler);

  // Makes the bytes below `end` writable; throws OutOfMemory where the system refuses.
  void Reach(int64_t end) {
    if (end > writable_) MakeReachable(end);
  }
  void MakeReachable(int64_t end);

  // The first page that begins at or beyond `end`.
  int64_t EndTouched(int64_t end) const { return (end + page_ - 1) >> shift_; }

  void NoteCrowd() {
    bool near = !scarce_ && Crowded();
    near_fits_.store(near, std::memory_order_relaxed);
    if (near && !had_near_fits()) BeginNearFits();
  }
  void BeginNearFits() {
    had_near_fits_.store(true, std::memory_order_relaxed);
    if (bin_most_ >= SlackTable::kLeast) bin_most_.store(SlackTable::kLeast - kGrain, std::memory_order_relaxed);
  }

  const int64_t soft_numerator_, soft_denominator_, page_;
  const int shift_;  // of a page
  int64_t most_aligned_ = int64_t{1} << 30;  // less where the capacity is small
  char* base_ = nullptr;
  SlackTable slack_;
  const int64_t capacity_;
  int64_t writable_ = 0;  // bytes
  FreeList free_list_;
  PageTable pages_;
  PageSet givable_;    // pages of `page_` bytes that are wholly free and at least partly backed
  PageSet fragments_;  // others that hold free backed pages of the system, and more
  bool scarce_ = false;
  std::atomic<bool> near_fits_{false}, had_near_fits_{false};
  std::atomic<uint32_t>& bin_most_;
};

}  // namespace symalloc

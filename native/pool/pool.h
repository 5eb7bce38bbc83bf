// The pool: symalloc/pool/core/reference_pool.py is the reference for every decision taken here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "pool/guard.h"
#include "pool/free_list.h"
#include "pool/allocation_tracker.h"
#include "pool/thread_cache.h"
#include "pool/page_table.h"
#include "pool/out_of_memory_report.h"
#include "pool/watermarks.h"

namespace symalloc {

struct Options {
  // a soft limit of numerator / denominator times what is in use at most; denominator 0: of `numerator`
  // bytes; numerator -1: none
  int64_t soft_numerator = 11;
  int64_t soft_denominator = 10;
  int64_t limit = -1;  // bytes; -1: none
  int64_t page = 64 << 10;
  int64_t bin_largest = kBinLargest;
  int64_t bin_capacity = 2 << 20;  // bytes that a thread caches in bins; twice as many in large blocks
  int64_t capacity = int64_t{1} << 40;
  bool separate_escaping = false;
  bool huge = true;
  bool guard = false;
};

struct Statistics {
  int64_t live = 0;       // bytes asked for and not freed
  int64_t allocs = 0;
  int64_t frees = 0;
  int64_t used = 0;       // bytes that the ranges have handed out, to callers or to bins
  int64_t peak_used = 0;  // without what waited in the bins of the thread that took more
  int64_t reserved = 0;   // bytes backed
  int64_t peak_reserved = 0;
  int64_t refused = 0;    // allocations that did not fit
  int64_t commits = 0, committed = 0, decommits = 0, decommitted = 0;
  int64_t threads = 0;
};

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The most at a time, in bytes.
struct Peak {
  int64_t used = 0;
  int64_t reserved = 0;

  void Raise(const Peak& other);
};

struct BadFree : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The pool that a thread has used last.
struct Recent {
  uint64_t pool_id;
  ThreadCache* cache;
};
extern __attribute__((tls_model("initial-exec"))) __thread Recent recent;  // not thread_local: that costs a call

// Thread-safe.  Blocks may be freed by another thread than allocated them.
class Pool {
 public:
  // `held_too`: a mutex to be held while the process forks, never taken together with one of the pool.
  explicit Pool(const Options& options, std::mutex* held_too = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // `nbytes` bytes at a multiple of `align`, a power of two; throws OutOfMemory, and in guard mode Overrun
  // for damage that was kept.  `tag` reaches recordings and scopes; `Tag` makes it stay.
  void* Alloc(int64_t nbytes, int64_t align, bool escapes, std::string_view tag = {});

  // `nbytes` must be what was asked for; throws BadFree for what is seen to be no block of this pool,
  // and in guard mode Overrun where the block was overrun: it is freed all the same.
  void Free(void* block, int64_t nbytes);

  // Empties the bins of all threads and gives every free page back; the bytes given back.
  int64_t Trim();

  Statistics statistics();

  // Counts the peaks of the statistics from what is in use now; no decision depends on them.
  void ResetPeak();

  // Says what a live block is for, in place of what was said before; "": nothing.
  void Tag(void* block, int64_t nbytes, std::string_view tag);

  // Counts what is allocated and freed until it is closed, by tag; any number at a time.
  int64_t OpenScope();
  std::pair<ScopeStatistics, Peak> ReadScope(int64_t id);
  void CloseScope(int64_t id);

  void SetLimit(int64_t limit);  // bytes; -1: none
  int64_t limit();

  // Has the callback called when the mark is passed, without the pool's mutex, by the thread that passes it or a
  // later one; its number, for `RemoveWatermark`.
  int64_t AddWatermark(Watermark watermark);
  void RemoveWatermark(int64_t id);

  // Asked when an allocation of so many bytes does not fit, for the n-th time (from 0), which makes it try again,
  // if it answers true; at most `retries` times for each allocation.  Nothing: nobody is asked.
  using OnOom = std::function<bool(int64_t nbytes, int64_t tries, const std::string& why)>;
  void SetOnOom(OnOom on_oom, int64_t retries);

  // Forgets all callbacks.
  void ClearCallbacks();

  // For each range: the number of its free intervals and of its runs of backed pages, then start and end of each.
  std::vector<int64_t> Layout();

  // Whether `block` lies in the address space of this pool.
  bool owns(const void* block) const { return RangeOf(block) >= 0; }

  // range * capacity + offset: what the reference calls an address.
  int64_t Address(const void* block) const;

  // nullptr where the pool is not in guard mode.
  Guard* guard() { return guard_.get(); }

  AllocationTracker& tracker() { return tracker_; }

  const Options& options() const { return options_; }

 private:
  friend struct ThreadDirectory;
  friend class PoolRegistry;

  struct Range {
    Range(char* base, const Options& options)
        : base(base), free_list(options.capacity), pages(base, options.page, options.huge) {}
    int64_t DecommitFree(int64_t nbytes, PageRecycler* recycler);
    int64_t LargestFree() const;
    // The largest free piece that lies in a backed page, all wholly free pages having been given back.
    int64_t LargestBacked(int64_t page) const;

    char* base;
    FreeList free_list;
    PageTable pages;
  };

  void* AllocGuarded(int64_t nbytes, int64_t align);
  void FreeGuarded(void* block, int64_t nbytes);
  void LockAll();
  void UnlockAll();
  bool ReserveRanges();
  // The range that `block` lies in, or -1.
  int RangeOf(const void* block) const {
    for (int i = 0; i < range_count_; ++i) {
      uint64_t offset = reinterpret_cast<uint64_t>(block) - reinterpret_cast<uint64_t>(bases_[i]);
      if (offset < static_cast<uint64_t>(options_.capacity)) return i;
    }
    return -1;
  }
  void* TakeBinned(ThreadCache* cache, int64_t nbytes, int which);
  bool PutBinned(ThreadCache* cache, void* block, int64_t nbytes, int which);
  void* TakeLarge(ThreadCache* cache, int64_t nbytes, int which);
  bool JoinLarge(ThreadCache* cache, void* block, int64_t nbytes, int which);
  // Whether a bin may hold such a block.
  bool Binned(int64_t nbytes, int64_t align) const {
    return static_cast<uint64_t>(nbytes) <= static_cast<uint64_t>(bin_largest_) && align <= kGrain && guard_ == nullptr;
  }
  // Out of line and called last, so that the quick way saves no registers.
  [[gnu::noinline]] void* AllocSlowly(int64_t nbytes, int64_t align, bool escapes, std::string_view tag);
  [[gnu::noinline]] void FreeSlowly(void* block, int64_t nbytes);
  void* AllocUnbinned(int64_t nbytes, int64_t align, bool escapes);
  void FreeUnbinned(ThreadCache* cache, void* block, int64_t nbytes, int which);
  ThreadCache* cache() {
    if (__builtin_expect(recent.pool_id == id_, 1)) return recent.cache;
    return FindCache();
  }
  ThreadCache* FindCache();
  ThreadCache* AddCache();
  void Retire(ThreadCache* cache);
  void* Place(ThreadCache* cache, int which, int64_t nbytes, int64_t align);
  int64_t TakeFree(ThreadCache* cache, int which, int64_t size, int64_t align, PageRecycler* recycler);
  // What body() gives; where it throws OutOfMemory, that may be asked for.
  template <typename Body>
  void* RetryingAfterOom(int64_t nbytes, Body body) {
    for (int64_t tries = 0;; ++tries) {
      try {
        return body();
      } catch (const OutOfMemory& error) {
        if (!AskForMemory(nbytes, tries, error)) throw;
      }
    }
  }
  bool AskForMemory(int64_t nbytes, int64_t tries, const OutOfMemory& error);
  void CountRefused();
  void CallWatermarks();
  void NoteUsed(int64_t change) {
    used_ += change;
    watermarks_.Note(used_);
  }
  void FoldPeaks();
  bool MakeRoom(int which, int64_t missing, int64_t size, int64_t in_use, PageRecycler* recycler);
  int64_t Tightest(Range* range, int64_t size, int64_t align);
  OutOfMemoryReport ReportOn(const Range& range, int64_t size, int64_t missing);
  bool Over(int64_t missing, int64_t size, int64_t in_use) const;
  int64_t InUse(const ThreadCache* cache) const;
  int64_t SoftLimit(int64_t size, int64_t in_use) const;
  void GiveBack(int which, int64_t nbytes, PageRecycler* recycler);
  void CloseBinsLocked();
  void OpenBins() { closed_.store(false, std::memory_order_release); }
  bool FlushOthersLocked(const ThreadCache* cache);
  void FlushLocked(ThreadCache* cache);
  void FlushLocked(SizeBins* bins);
  void FlushLocked(LargeBlockCache* piece);
  void KeepLocked(LargeBlockCache* piece, void* block, int64_t size);
  void ReleaseLocked(void* block, int64_t size);
  int64_t ReservedLocked() const;

  Options options_;  // as given, but for the capacity, which may be less
  const uint64_t id_;        // never used twice in a process
  const int64_t bin_largest_;
  const int64_t large_block_capacity_;  // bytes of a large-block cache
  std::atomic<bool> closed_{false};  // the bins of others: somebody who holds the mutex is at them
  int range_count_;
  int64_t most_aligned_ = int64_t{1} << 30;  // bytes; less where the capacity is small
  char* bases_[2];

  std::unique_ptr<Guard> guard_;
  AllocationTracker tracker_;
  std::vector<std::mutex*> held_at_fork_;

  std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<Range>> ranges_;
  std::vector<std::unique_ptr<ThreadCache>> caches_;
  Watermarks watermarks_;
  std::shared_ptr<const OnOom> on_oom_;
  int64_t oom_retries_ = 0;
  int64_t used_ = 0, peak_used_ = 0, refused_ = 0;
  Peak peak_;    // since it was last reset
  Peak recent_;  // since a scope was last opened or read, or the peaks reset
  std::map<int64_t, Peak> scope_peaks_;
  int64_t retired_allocs_ = 0, retired_frees_ = 0, retired_live_ = 0;
};

}  // namespace symalloc

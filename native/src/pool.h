// The pool: symalloc/pool/policy.py is the reference for every decision taken here.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "bins.h"
#include "guard.h"
#include "holes.h"
#include "pages.h"
#include "recorder.h"

namespace symalloc {

struct Options {
  // a soft limit of numerator / denominator times what is in use at most; denominator 0: of `numerator`
  // bytes; numerator -1: none
  int64_t soft_numerator = 11;
  int64_t soft_denominator = 10;
  int64_t limit = -1;  // bytes; -1: none
  int64_t page = 64 << 10;
  int64_t bin_largest = kBinLargest;
  int64_t bin_capacity = 2 << 20;  // bytes that a thread holds back
  int64_t capacity = int64_t{1} << 40;
  bool apart = false;
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
  int64_t commits = 0, committed = 0, decommits = 0, decommitted = 0;
  int64_t threads = 0;
};

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct BadFree : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Thread-safe.  Blocks may be freed by another thread than allocated them.
class Pool {
 public:
  // `held_too`: a mutex to be held while the process forks, never taken together with one of the pool.
  explicit Pool(const Options& options, std::mutex* held_too = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // `nbytes` bytes at a multiple of `align`, a power of two; throws OutOfMemory, and in guard mode Overrun
  // for damage that was kept.
  void* Alloc(int64_t nbytes, int64_t align, bool escapes);

  // `nbytes` must be what was asked for; throws BadFree for what is seen to be no block of this pool,
  // and in guard mode Overrun where the block was overrun: it is freed all the same.
  void Free(void* block, int64_t nbytes);

  // Empties the calling thread's bins, gives every free page back, and has the other threads empty theirs
  // when they free next; the bytes given back.
  int64_t Trim();

  Statistics statistics();

  // Whether `block` lies in the address space of this pool.
  bool owns(const void* block) const { return RangeOf(block) >= 0; }

  // range * capacity + offset: what the reference calls an address.
  int64_t Address(const void* block) const;

  // nullptr where the pool is not in guard mode.
  Guard* guard() { return guard_.get(); }

  Recorder& recorder() { return recorder_; }

  const Options& options() const { return options_; }

 private:
  friend struct ThreadDirectory;
  friend class Registry;

  struct Range {
    Range(char* base, const Options& options)
        : base(base), holes(options.capacity), pages(base, options.page, options.huge) {}
    int64_t DecommitFree(int64_t nbytes);

    char* base;
    Holes holes;
    Pages pages;
  };

  // What one thread has of one pool.  Written by that thread alone; the counts are read by others.
  struct Local {
    Bins bins[2];
    uint64_t flushed = 0;  // the last wish to flush that this thread has followed
    std::atomic<int64_t> allocs{0}, frees{0}, live{0};

    void CountAlloc(int64_t nbytes) {
      Add(&allocs, 1);
      Add(&live, nbytes);
    }
    void CountFree(int64_t nbytes) {
      Add(&frees, 1);
      Add(&live, -nbytes);
    }
    static void Add(std::atomic<int64_t>* counter, int64_t value) {
      counter->store(counter->load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
    }
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
  Local* local();
  Local* FindLocal();
  void Retire(Local* local);
  void* Place(Local* local, int which, int64_t size, int64_t align);
  void MakeRoom(int which, int64_t missing, int64_t size, int64_t in_use);
  bool Over(int64_t missing, int64_t size, int64_t in_use) const;
  int64_t InUse(const Local* local) const;
  int64_t SoftLimit(int64_t size, int64_t in_use) const;
  void GiveBack(int which, int64_t nbytes);
  void FlushLocked(Bins* bins);
  void ReleaseLocked(void* block, int64_t size);
  int64_t ReservedLocked() const;

  Options options_;  // as given, but for the capacity, which may be less
  const uint64_t id_;        // never used twice in a process
  const int64_t bin_largest_;
  std::atomic<uint64_t> flush_wish_{0};
  int range_count_;
  char* bases_[2];

  std::unique_ptr<Guard> guard_;
  Recorder recorder_;
  std::vector<std::mutex*> held_at_fork_;

  std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<Range>> ranges_;
  std::vector<std::unique_ptr<Local>> locals_;
  int64_t used_ = 0, peak_used_ = 0, peak_reserved_ = 0;
  int64_t retired_allocs_ = 0, retired_frees_ = 0, retired_live_ = 0;
};

}  // namespace symalloc

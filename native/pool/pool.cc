#include "pool/pool.h"

#include <algorithm>
#include <utility>

#include "pool/os_memory.h"
#include "pool/pool_registry.h"
#include "pool/rounding.h"

namespace symalloc {

namespace {

constexpr int64_t kLeastCapacity = 1 << 26;
constexpr int64_t kLeastSoft = 2 << 20;  // bytes
constexpr char kFreeAlready[] = "what is freed is free already, in whole or in part";

}  // namespace

int64_t Pool::Range::DecommitFree(int64_t nbytes, PageRecycler* recycler) {
  int64_t given = 0;
  free_list.Downwards([&](int64_t start, int64_t end) {
    if (given >= nbytes) return false;
    given += pages.Decommit(start, end, nbytes - given, recycler);
    return true;
  });
  return given;
}

Pool::Pool(const Options& options, std::mutex* held_too)
    : options_(options),
      id_(PoolRegistry::Global().NewId()),
      bin_largest_(std::min({options.bin_largest, options.bin_capacity, kBinLargest})),
      large_block_capacity_(2 * std::min(options.bin_capacity, options.capacity)),
      range_count_(options.separate_escaping ? 2 : 1),
      guard_(options.guard ? std::make_unique<Guard>() : nullptr),
      held_at_fork_{tracker_.mutex(), &mutex_} {
  // a process may have been given less address space than a machine has
  while (!ReserveRanges()) {
    options_.capacity /= 2;
    if (options_.capacity < kLeastCapacity) {
      throw OutOfMemory("no " + std::to_string(kLeastCapacity) + " bytes of address space are free for a pool");
    }
  }
  if (held_too != nullptr) held_at_fork_.push_back(held_too);
  if (guard_ != nullptr) held_at_fork_.push_back(guard_->mutex());
  PoolRegistry::Global().Add(id_, this);
}

bool Pool::ReserveRanges() {
  while (most_aligned_ > kHugePage && most_aligned_ > options_.capacity / 8) most_aligned_ /= 2;
  for (int i = 0; i < range_count_; ++i) {
    char* base = ReserveAddresses(options_.capacity, most_aligned_);
    if (base == nullptr) {
      for (auto& range : ranges_) ReleaseAddresses(range->base, options_.capacity);
      ranges_.clear();
      return false;
    }
    bases_[i] = base;
    ranges_.push_back(std::make_unique<Range>(base, options_));
  }
  return true;
}

Pool::~Pool() {
  PoolRegistry::Global().Remove(id_);
  for (auto& range : ranges_) ReleaseAddresses(range->base, options_.capacity);
}

void* Pool::AllocUnbinned(int64_t nbytes, int64_t align, bool escapes) {
  if (nbytes < 0 || nbytes > options_.capacity) {
    throw OutOfMemory(std::to_string(nbytes) + " bytes are more than the address space of a range");
  }
  if (align > most_aligned_) {
    throw OutOfMemory("an alignment of " + std::to_string(align) + " bytes is more than the pool can hold");
  }
  align = std::max(align, kGrain);
  if (guard_ == nullptr && align == kGrain) {
    if (void* block = TakeLarge(cache(), nbytes, escapes && options_.separate_escaping)) return block;
  }
  void* block = RetryingAfterOom(nbytes, [&] {
    if (guard_ != nullptr) return AllocGuarded(nbytes, align);
    return Place(cache(), escapes && options_.separate_escaping, nbytes, align);
  });
  if (watermarks_.due()) CallWatermarks();
  return block;
}

void Pool::FreeUnbinned(ThreadCache* cache, void* block, int64_t nbytes, int which) {
  if (JoinLarge(cache, block, nbytes, which)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t size = Rounded(nbytes);
  if (cache == nullptr) {
    ReleaseLocked(block, size);
    ++retired_frees_;
    retired_live_ -= nbytes;
    return;
  }
  SizeBins& bins = cache->bins[which];
  if (size > large_block_capacity_) {
    ReleaseLocked(block, size);
  } else if (size > bin_largest_) {
    KeepLocked(&cache->large_blocks[which], block, size);
  } else {
    if (bins.held() + size > options_.bin_capacity) FlushLocked(&bins);
    bins.Put(block, size);
  }
  cache->CountFree(nbytes);
}

// Keeps a block in place of the large blocks that are kept.
void Pool::KeepLocked(LargeBlockCache* piece, void* block, int64_t size) {
  FlushLocked(piece);
  Range& range = *ranges_[RangeOf(block)];
  int64_t offset = static_cast<char*>(block) - range.base;
  if (offset + size > options_.capacity || range.free_list.Overlaps(offset, size)) throw BadFree(kFreeAlready);
  piece->Join(block, size, large_block_capacity_);
}

void* Pool::AllocGuarded(int64_t nbytes, int64_t align) {
  std::string kept = guard_->Kept();
  if (!kept.empty()) throw Overrun(kept);
  int64_t backed = Guard::Backed(nbytes, align);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (options_.limit >= 0 && used_ + backed > options_.limit) {
      throw OutOfMemory(OutOfMemoryReport{backed, options_.limit, used_, 0, used_, backed, 0, 4096}.Text());
    }
    NoteUsed(backed);
  }
  void* block = guard_->Alloc(nbytes, align);
  std::lock_guard<std::mutex> lock(mutex_);
  if (block == nullptr) {
    NoteUsed(-backed);
    throw OutOfMemory("the system has no " + std::to_string(backed) +
                      " bytes left, or takes no more mappings; guard mode needs two for each block");
  }
  peak_used_ = std::max(peak_used_, used_);
  recent_.Raise({used_, used_});
  ++retired_allocs_;
  retired_live_ += nbytes;
  return block;
}

void Pool::FreeGuarded(void* block, int64_t nbytes) {
  if (tracker_.on()) tracker_.Freed(block, nbytes);
  int64_t backed;
  std::string damage = guard_->Free(block, &backed);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    NoteUsed(-backed);
    ++retired_frees_;
    retired_live_ -= nbytes;
  }
  if (watermarks_.due()) CallWatermarks();
  if (!damage.empty()) throw Overrun(damage);
}

int64_t Pool::Trim() {
  ThreadCache* mine = cache();
  int64_t given = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    FlushLocked(mine);
    FlushOthersLocked(mine);
    for (auto& range : ranges_) given += range->DecommitFree(range->pages.reserved(), nullptr);
  }
  if (watermarks_.due()) CallWatermarks();
  return given;
}

int64_t Pool::Address(const void* block) const {
  int which = RangeOf(block);
  if (which < 0) throw BadFree("what is asked for is no block of this pool");
  return which * options_.capacity + (static_cast<const char*>(block) - ranges_[which]->base);
}

void* Pool::Place(ThreadCache* cache, int which, int64_t nbytes, int64_t align) {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t size = Rounded(nbytes);
  Range& range = *ranges_[which];
  PageRecycler recycler(options_.huge);
  int64_t offset = TakeFree(cache, which, size, align, &recycler);
  if (offset == FreeList::kNone && FlushOthersLocked(cache)) offset = TakeFree(cache, which, size, align, &recycler);
  if (offset == FreeList::kNone) {
    recycler.GiveBack();
    offset = Tightest(&range, size, align);
    range.free_list.Take(offset, size);
    range.pages.Commit(offset, size, &recycler);
  }
  NoteUsed(size);
  int64_t in_use = InUse(cache);
  peak_used_ = std::max(peak_used_, in_use);
  recent_.Raise({in_use, ReservedLocked()});
  if (cache != nullptr) {
    cache->CountAlloc(nbytes);
  } else {
    ++retired_allocs_;
    retired_live_ += nbytes;
  }
  return range.base + offset;
}

// Takes the lowest free place, and backs what is missing there; kNone where there is none,
// or the limit would be broken.
int64_t Pool::TakeFree(ThreadCache* cache, int which, int64_t size, int64_t align, PageRecycler* recycler) {
  Range& range = *ranges_[which];
  int64_t offset = range.free_list.Find(size, align);
  int64_t missing = offset == FreeList::kNone ? 0 : range.pages.Missing(offset, size);
  if (offset == FreeList::kNone || Over(missing, size, InUse(cache))) {
    FlushLocked(cache);
    offset = range.free_list.Find(size, align);
    if (offset == FreeList::kNone) return offset;
    missing = range.pages.Missing(offset, size);
  }
  range.free_list.Take(offset, size);
  if (missing == 0) return offset;
  if (!MakeRoom(which, missing, size, InUse(cache), recycler)) {
    range.free_list.Put(offset, size);
    return FreeList::kNone;
  }
  range.pages.Commit(offset, size, recycler);
  return offset;
}

// Bytes in use: those that wait in the bins of this thread are not.
int64_t Pool::InUse(const ThreadCache* cache) const {
  return cache == nullptr ? used_ : used_ - cache->held();
}

// Whether backing `missing` bytes more, if any, breaks a limit.
bool Pool::Over(int64_t missing, int64_t size, int64_t in_use) const {
  if (missing == 0) return false;
  int64_t soft = SoftLimit(size, in_use);
  int64_t reserved = ReservedLocked() + missing;
  return (soft >= 0 && reserved > soft) || (options_.limit >= 0 && reserved > options_.limit);
}

// Gives free pages back so that `missing` bytes can be committed; false where that breaks the limit all the same.
bool Pool::MakeRoom(int which, int64_t missing, int64_t size, int64_t in_use, PageRecycler* recycler) {
  int64_t soft = SoftLimit(size, in_use);
  if (soft >= 0) GiveBack(which, ReservedLocked() + missing - soft, recycler);
  if (options_.limit < 0) return true;
  GiveBack(which, ReservedLocked() + missing - options_.limit, recycler);
  return ReservedLocked() + missing <= options_.limit;
}

// Where a block costs the fewest pages once all free pages are given back: at the lower or the upper end of a
// free interval, whose inner pages are all missing.
int64_t Pool::Tightest(Range* range, int64_t size, int64_t align) {
  if (range->free_list.Find(size, align) == FreeList::kNone) {
    throw OutOfMemory(NoAddressSpace(size, range->LargestFree(), options_.capacity));
  }
  for (auto& each : ranges_) each->DecommitFree(each->pages.reserved(), nullptr);
  int64_t best = FreeList::kNone, least = 0;
  range->free_list.Downwards([&](int64_t start, int64_t end) {
    for (int64_t offset : {(end - size) & -align, RoundUp(start, align)}) {
      if (end - start < size || offset < start || offset + size > end) continue;
      int64_t missing = range->pages.Missing(offset, size);
      if (best == FreeList::kNone || missing <= least) {
        best = offset;
        least = missing;
      }
    }
    return true;
  });
  if (ReservedLocked() + least <= options_.limit) return best;
  throw OutOfMemory(ReportOn(*range, size, least).Text());
}

int64_t Pool::SoftLimit(int64_t size, int64_t in_use) const {
  if (options_.soft_denominator == 0) return options_.soft_numerator;
  if (options_.soft_numerator < 0) return -1;
  __int128 used = std::max(peak_used_, in_use + size);
  return std::max(static_cast<int64_t>(options_.soft_numerator * used / options_.soft_denominator), kLeastSoft);
}

void Pool::GiveBack(int which, int64_t nbytes, PageRecycler* recycler) {
  for (size_t i = 0; i < ranges_.size() && nbytes > 0; ++i) {
    size_t chosen = i == 0 ? which : i - (i <= static_cast<size_t>(which));
    nbytes -= ranges_[chosen]->DecommitFree(nbytes, recycler);
  }
}

void Pool::ReleaseLocked(void* block, int64_t size) {
  Range& range = *ranges_[RangeOf(block)];
  int64_t offset = static_cast<char*>(block) - range.base;
  if (offset + size > options_.capacity || !range.free_list.Put(offset, size)) {
    throw BadFree(kFreeAlready);
  }
  NoteUsed(-size);
}

int64_t Pool::ReservedLocked() const {
  if (guard_ != nullptr) return used_;
  int64_t reserved = 0;
  for (auto& range : ranges_) reserved += range->pages.reserved();
  return reserved;
}

}  // namespace symalloc

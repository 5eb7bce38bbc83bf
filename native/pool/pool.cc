#include "pool/pool.h"

#include <algorithm>
#include <utility>

#include "pool/out_of_memory_report.h"
#include "pool/pool_registry.h"

namespace symalloc {

namespace {

constexpr int64_t kPart = 2 << 20;  // bytes that are given back at a time: a fraction of a millisecond

}  // namespace

Pool::Pool(const Options& options, std::mutex* held_too)
    : home_cache_(std::min(options.bin_largest, options.bin_capacity), std::min(options.bin_capacity, SizeBins::kMost)),
      large_block_capacity_(2 * options.bin_capacity),
      page_(options.page),
      wait_(options.wait),
      check_interrupts_(options.check_interrupts),
      guard_(options.guard ? std::make_unique<Guard>() : nullptr),
      tracker_(&quick_.flags),
      held_at_fork_{tracker_.mutex(), &mutex_},
      range_(options, &quick_.free_most),
      decay_(options.guard ? 0 : options.decay),
      caches_(&quick_.flags, &home_cache_),
      watermarks_(&quick_.flags) {
  quick_.id = PoolRegistry::Global().NewId();
  quick_.caches = !options.guard && options.bin_capacity > 0;
  quick_.alloc_most = quick_.caches ? home_cache_.bin_largest & -kGrain : 0;
  quick_.free_most = static_cast<uint32_t>(quick_.alloc_most);
  if (!HasHeavyBarrier()) quick_.flags.Set(QuickFlags::kHeavy, true);
  quick_.grains = static_cast<uint64_t>(range_.capacity()) / kGrain;
  quick_.base = reinterpret_cast<uint64_t>(range_.base());
  if (held_too != nullptr) held_at_fork_.push_back(held_too);
  if (guard_ != nullptr) held_at_fork_.push_back(guard_->mutex());
  PoolRegistry::Global().Add(quick_.id, this);
  if (decay_.on()) DecayThread::Global().Add(quick_.id, this, decay_.seconds());
}

Pool::~Pool() {
  if (decay_.on()) DecayThread::Global().Remove(quick_.id);
  PoolRegistry::Global().Remove(quick_.id);
}

void* Pool::AllocUncached(Request asked) {
  auto [nbytes, align] = std::pair(asked.nbytes, asked.align);
  if (nbytes < 0 || nbytes > range_.capacity()) {
    throw OutOfMemory(std::to_string(nbytes) + " bytes are more than the address space of a range");
  }
  if (align > range_.most_aligned()) {
    throw OutOfMemory("an alignment of " + std::to_string(align) + " bytes is more than the pool can hold");
  }
  asked.align = std::max(align, kGrain);
  if (asked.charge != nullptr && guard_ == nullptr) {
    for (const auto& each : *asked.charge) asked.align = std::max(asked.align, each->page);
  }
  void* block = Obtain(asked);
  if (watermarks_.due()) CallWatermarksWith(block, nbytes);
  return block;
}

void Pool::FreeUncached(ThreadCache* cache, void* block, int64_t nbytes) {
  Lock lock(mutex_);
  auto [slack, is_kept] = KnownOf(block, Rounded(nbytes));
  int64_t size = Rounded(nbytes) + slack;
  if (is_kept) throw BadFree("what is freed is free already: a thread caches it");
  if (closed_ || queue_.any() || cache == nullptr || large_block_capacity_ == 0) {
    ReleaseLocked(block, size);
    WakeLocked();
  } else if (range_.near_fits() && NearFitCache::Takes(size)) {
    KeepNearLocked(cache, block, size);
  } else if (!cache->GoesToBin(block, size)) {
    KeepLocked(cache, block, size);
  } else {
    SizeBins& bins = cache->bins;
    if (!bins.HasRoom(size)) {
      bins.Flush([this](void* freed, int64_t freed_size) { ReleaseLocked(freed, freed_size); });
    }
    if (!bins.Put(block, size) && !(bins.Grow() && bins.Put(block, size))) ReleaseLocked(block, size);
  }
  ForgetSlack(cache, block, slack);
  caches_.CountFree(cache, nbytes);
  if (closed_) ReleaseDeferredLocked();
  if (closed_ && used_ == 0) {
    GiveBackFree(&lock, true, range_.reserved());
    AwaitDepartures(&lock);
  }
  if (decay_.on()) DecayThread::Global().Ensure();
}

void* Pool::AllocGuarded(int64_t nbytes, int64_t align) {
  std::string kept = guard_->Kept();
  if (!kept.empty()) throw Overrun(kept);
  int64_t backed = Guard::Backed(nbytes, align);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    RequireOpenLocked();
    if (range_.limit >= 0 && used_ + backed > range_.limit) {
      throw OutOfMemory(OutOfMemoryReport{backed, range_.limit, used_, used_, backed, 0}.Text());
    }
    NoteUsed(backed);
  }
  void* block = guard_->Alloc(nbytes, align);
  std::lock_guard<std::mutex> lock(mutex_);
  if (block == nullptr) {
    NoteUsed(-backed);
    WakeLocked();
    throw OutOfMemory("the system has no " + std::to_string(backed) +
                      " bytes left, or takes no more mappings; guard mode needs two for each block");
  }
  peaks_.Note(NowLocked());
  caches_.CountAlloc(nullptr, nbytes);
  return block;
}

void Pool::FreeGuarded(void* block, int64_t nbytes) {
  if (tracker_.tracking()) tracker_.Freed(block, nbytes);
  ChargeRef charge = Uncharge(block);
  std::string damage = DropGuarded(block, nbytes);
  Refund(charge, nbytes);
  if (watermarks_.due()) CallWatermarks();
  if (!damage.empty()) throw Overrun(damage);
}

std::string Pool::DropGuarded(void* block, int64_t nbytes) {
  int64_t backed;
  std::string damage = guard_->Free(block, &backed);
  std::lock_guard<std::mutex> lock(mutex_);
  NoteUsed(-backed);
  WakeLocked();
  caches_.CountFree(nullptr, nbytes);
  return damage;
}

int64_t Pool::Trim(const GoOn& go_on) {
  ThreadCache* mine = cache();
  int64_t given;
  {
    Lock lock(mutex_);
    FlushLocked(mine);
    FlushOthersLocked(mine);
    ReleaseDeferredLocked();
    WakeLocked();
    given = GiveBackFree(&lock, true, range_.reserved(), go_on);
    NoteFree();
    AwaitDepartures(&lock);
  }
  if (watermarks_.due()) CallWatermarks();
  return given;
}

void Pool::Close() {
  Lock lock(mutex_);
  closed_ = true;
  caches_.Close();
  FlushOthersLocked(nullptr);
  ReleaseDeferredLocked();
  queue_.WakeAll();
  GiveBackFree(&lock, true, range_.reserved());
  AwaitDepartures(&lock);
}

int64_t Pool::DecayAt(double now, const GoOn& go_on) {
  Lock lock(mutex_);
  if (!decay_.on() || !decay_.Ended(now)) return 0;
  caches_.FlushIdle([this](ThreadCache* cache) { FlushLocked(cache); });
  WakeLocked();
  int64_t given = GiveBackFree(&lock, true, decay_.Needless(range_.free_pages()), go_on);
  decay_.Begin(now, range_.free_pages());
  return given;
}

// Gives `most` bytes of free pages back, a few at a time, without the mutex meanwhile; the bytes.
// `yields`: to allocations that wait.
int64_t Pool::GiveBackFree(Lock* lock, bool yields, int64_t most, const GoOn& go_on) {
  PageRecycler recycler;
  PagedRange::Trimming trimming;
  for (int64_t given = 0;;) {
    while (yields && waiting_ > 0) departed_.wait(*lock);
    trimming.aligned = most - given >= 2 * kPart;
    int64_t part = given < most ? range_.GiveBack(std::min(kPart, most - given), &recycler, &trimming) : 0;
    Settle(lock, &recycler);
    given += part;
    if (part == 0) return given;
    if (go_on == nullptr) continue;
    lock->unlock();
    bool more = go_on();
    lock->lock();
    if (!more) return given;
  }
}

// Gives the free pages of the system back, in the same way.
void Pool::GiveBackUnits(Lock* lock) {
  PageRecycler recycler;
  for (int64_t below = INT64_MAX; below > 0;) {
    range_.GiveBackUnits(kPart, &below, &recycler);
    Settle(lock, &recycler);
    lock->unlock();  // where nothing was found, too
    lock->lock();
  }
}

// Does what `recycler` has to do, without the mutex meanwhile.
void Pool::Settle(Lock* lock, PageRecycler* recycler) {
  if (!range_.limbo.empty()) recycler->ForgoPages();  // another thread gives pages back: the kernel would make both wait
  if (recycler->wants()) {
    lock->unlock();
    recycler->Ask();
    lock->lock();
  }
  if (recycler->empty()) return;
  range_.limbo.Add(recycler);
  while (!recycler->empty()) {
    PageRecycler::Part part = recycler->Next(kPart);
    lock->unlock();
    recycler->Settle(part);
    lock->lock();
    range_.limbo.Drop(recycler, part);
    ++departures_;
    departed_.notify_all();
  }
  range_.limbo.Remove(recycler);
}

// Until something has left limbo.
void Pool::AwaitDeparture(Lock* lock) {
  uint64_t before = departures_;
  while (!range_.limbo.empty() && departures_ == before) departed_.wait(*lock);
}

void Pool::RequireOpenLocked() const {
  if (closed_) throw PoolUsage("the pool is closed: whoever could use it is gone");
}

// Until nothing is in limbo.
void Pool::AwaitDepartures(Lock* lock) {
  ++waiting_;
  while (!range_.limbo.empty()) departed_.wait(*lock);
  --waiting_;
  departed_.notify_all();
}

void* Pool::Place(ThreadCache* cache, int64_t nbytes, int64_t align) {
  Lock lock(mutex_);
  struct Waiting {
    ~Waiting() {
      if (pool == nullptr) return;
      --pool->waiting_;
      pool->departed_.notify_all();
    }
    Pool* pool = nullptr;
  } waiting;
  int64_t size = Rounded(nbytes);
  for (;;) {
    RequireOpenLocked();
    ReleaseDeferredLocked();
    PageRecycler recycler;
    char* block = nullptr;
    try {
      block = TakeLocked(&lock, cache, size, align, &recycler);
      CountTaken(cache, nbytes, size);
    } catch (const OutOfMemory&) {
      NoteFree();
      throw;
    } catch (const PagedRange::Awaited&) {
      if (waiting.pool == nullptr) ++waiting_;
      waiting.pool = this;
    }
    Settle(&lock, &recycler);
    if (block != nullptr) return block;
    AwaitDeparture(&lock);
  }
}

char* Pool::TakeLocked(Lock* lock, ThreadCache* cache, int64_t size, int64_t align, PageRecycler* recycler) {
  auto flush_large_block = [&] {
    cache->large_block.Flush([this](void* freed, int64_t freed_size) { ReleaseLocked(freed, freed_size); });
  };
  if (cache != nullptr && cache->large_block.size() > large_block_capacity_) flush_large_block();
  char* block = range_.TakeWithinLimits(size, align, InUse(cache), recycler);
  if (block != nullptr) return block;
  if (cache != nullptr) flush_large_block();
  block = range_.TakeBacked(size, align, recycler);
  if (block != nullptr) return block;
  FlushLocked(cache);
  block = range_.TakeMakingRoom(size, align, InUse(cache), recycler);
  if (block == nullptr && FlushOthersLocked(cache)) {
    block = range_.TakeMakingRoom(size, align, InUse(cache), recycler);
  }
  return block == nullptr ? TakeTightest(lock, cache, size, align, recycler) : block;
}

void Pool::CountTaken(ThreadCache* cache, int64_t nbytes, int64_t size) {
  NoteFree();
  NoteUsed(size);
  range_.peak_in_use = std::max(range_.peak_in_use, InUse(cache));
  peaks_.Note(NowLocked());
  caches_.CountAlloc(cache, nbytes);
}

// Whatever can be given back is.  Others go on meanwhile, and may take it, or cache what they free.  So in the end nobody is
// at any cache: then a block is refused only where the pages that blocks in use touch, and those that it lacks, are too many.
char* Pool::TakeTightest(Lock* lock, ThreadCache* cache, int64_t size, int64_t align, PageRecycler* recycler) {
  range_.RequirePlace(size, align);
  FreeSlackLocked();
  Settle(lock, recycler);
  GiveBackFree(lock, false, range_.reserved());
  FlushLocked(cache);
  FlushOthersLocked(cache);
  if (!range_.limbo.empty()) throw PagedRange::Awaited();
  PagedRange::Place best = range_.Tightest(size, align, false);
  if (range_.Fits(best)) return range_.TakeAt(best, size, recycler);
  GiveBackUnits(lock);
  if (!range_.limbo.empty()) throw PagedRange::Awaited();
  return caches_.WhileClosed([&] {
    FlushOthersLocked(nullptr);
    best = range_.Tightest(size, align, true);
    if (range_.Fits(best)) return range_.TakeAt(best, size, recycler);
    throw OutOfMemory(
        OutOfMemoryReport{size, range_.limit, used_, range_.reserved(), best.missing, range_.LargestBacked()}.Text());
  });
}

Statistics Pool::statistics() {
  std::lock_guard<std::mutex> lock(mutex_);
  Statistics s;
  ThreadCaches::Counts counts = caches_.counts();
  s.live = counts.live;
  s.allocs = counts.allocs;
  s.frees = counts.frees;
  s.threads = caches_.threads();
  s.used = used_;
  s.reserved = ReservedLocked();
  s.peak_used = peaks_.peak().used;
  s.peak_reserved = peaks_.peak().reserved;
  s.refused = refused_;
  range_.CountPaging(&s);
  return s;
}

void Pool::ResetPeak() {
  std::lock_guard<std::mutex> lock(mutex_);
  peaks_.Reset(NowLocked());
}

int64_t Pool::OpenScope() {
  int64_t id = tracker_.OpenScope(statistics().live);
  std::lock_guard<std::mutex> lock(mutex_);
  peaks_.OpenScope(id, NowLocked());
  return id;
}

std::pair<ScopeStatistics, Peak> Pool::ReadScope(int64_t id) {
  ScopeStatistics statistics = tracker_.ReadScope(id);
  std::lock_guard<std::mutex> lock(mutex_);
  return {statistics, peaks_.ReadScope(id, NowLocked())};
}

void Pool::CloseScope(int64_t id) {
  tracker_.CloseScope(id);
  std::lock_guard<std::mutex> lock(mutex_);
  peaks_.CloseScope(id);
}

void Pool::Tag(void* block, int64_t nbytes, std::string_view tag) {
  if (guard_ != nullptr) guard_->Name(block, std::string(tag));
  tracker_.Tag(block, nbytes, tag);
  if (!tracker_.charging()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_.Tag(block, tag);
}

std::vector<int64_t> Pool::Layout() {
  std::lock_guard<std::mutex> lock(mutex_);
  return range_.Layout();
}

}  // namespace symalloc

// The way of most blocks through the pool: to and from what their thread keeps, without the mutex.
#include <new>

#include "pool/pool.h"

namespace symalloc {

[[gnu::always_inline]] inline bool Pool::PutCached(ThreadCache* cache, void* block, int64_t nbytes) {
  if (cache == nullptr || !cache->section.Enter(quick_.flags)) return false;
  auto [slack, is_kept] = KnownOf(block, Rounded(nbytes));
  int64_t size = Rounded(nbytes) + slack;
  bool kept;
  if (range_.near_fits() && NearFitCache::Takes(size)) {
    kept = cache->near_fits.HasRoom(size) && !is_kept;
    if (kept) cache->near_fits.Put(block, size);
  } else if (!cache->GoesToBin(block, size)) {
    kept = !is_kept && cache->large_block.Join(block, size);
  } else {
    SizeBins& bins = cache->bins;
    kept = bins.HasRoom(size) && bins.Put(block, size);
  }
  if (kept) {
    ForgetSlack(cache, block, slack);
    cache->CountFree(nbytes);
  }
  cache->section.Leave();
  return kept;
}

// Of a block that comes from a cache.
void Pool::NoteSlack(ThreadCache* cache, const Piece& piece, int64_t slack) {
  range_.slack().Note(range_.Offset(piece.block), piece.nbytes, slack);
  cache->slack.Add(slack);
}

// Of a block that is freed, with its slack.
void Pool::ForgetSlack(ThreadCache* cache, const void* block, int64_t slack) {
  if (__builtin_expect(slack == 0, 1)) return;
  int64_t offset = range_.Offset(block);
  if (!range_.slack().Of(offset).kept) range_.slack().Forget(offset);
  caches_.CountSlackFreed(cache, slack);
}

// A small block of which one was freed last, or nullptr.  Looks at three cache lines, or two.
[[gnu::always_inline]] inline void* Pool::TakeQuickly(ThreadCache* cache, int64_t nbytes) {
  if (__builtin_expect(!cache->section.EnterQuickly(quick_.flags), 0)) return nullptr;
  void* block = cache->bins.TakeLast(SizeBins::Index(nbytes));
  if (__builtin_expect(block != nullptr, 1)) cache->CountAlloc(nbytes);
  cache->section.Leave();
  return block;
}

// False where it takes longer.
[[gnu::always_inline]] inline bool Pool::PutQuickly(ThreadCache* cache, void* block, int64_t nbytes) {
  if (__builtin_expect(!cache->section.EnterQuickly(quick_.flags), 0)) return false;
  bool kept = cache->SurelyGoesToBin(block, nbytes) && cache->bins.PutLast(block, SizeBins::Index(nbytes));
  if (__builtin_expect(kept, 1)) cache->CountFree(nbytes);
  cache->section.Leave();
  return kept;
}

// It saves no registers.
void* Pool::Alloc(int64_t nbytes, int64_t align, std::string_view tag) {
  if (__builtin_expect(static_cast<uint64_t>(nbytes) - 1 >= quick_.alloc_most, 0) ||
      __builtin_expect(align > kGrain, 0)) {
    return AllocCached(nbytes, align, tag);
  }
  void* block = nullptr;
  if (__builtin_expect(IsHome(), 1)) {
    block = TakeQuickly(&home_cache_, nbytes);
  } else if (const KnownCache& known = known_caches.At(quick_.id); known.pool_id == quick_.id) {
    block = TakeQuickly(known.cache, nbytes);
  }
  if (__builtin_expect(block != nullptr, 1)) return block;
  return AllocCached(nbytes, kGrain, tag);  // one register less to keep
}

void* Pool::AllocCached(int64_t nbytes, int64_t align, std::string_view tag) {
  if (__builtin_expect(Cacheable(nbytes, align) && !tracker_.on(), 1)) {
    void* block = TakeCached(QuickCache(), nbytes);
    if (__builtin_expect(block != nullptr, 1)) return block;
  }
  return AllocSlowly(nbytes, align, tag);
}

void* Pool::AllocSlowly(int64_t nbytes, int64_t align, std::string_view tag) {
  return AllocWaiting(nbytes, align, tag, Patience{wait_});
}

void* Pool::AllocWaiting(int64_t nbytes, int64_t align, std::string_view tag, Patience patience) {
  Request asked{nbytes, align, tag, patience, nullptr};
  if (tracker_.charging()) asked.charge = Sessions::Current(quick_.id);
  bool cacheable = asked.charge == nullptr && Cacheable(nbytes, align);
  void* block = cacheable ? TakeCached(cache(), nbytes) : nullptr;
  if (block == nullptr) block = AllocUncached(asked);
  if (tracker_.tracking()) tracker_.Allocated(block, nbytes, tag);
  return block;
}

// As `Alloc`.
void Pool::Free(void* block, int64_t nbytes) {
  bool small = static_cast<uint64_t>(nbytes) - 1 < quick_.free_most.load(std::memory_order_relaxed);
  if (__builtin_expect(!small, 0) || __builtin_expect(!MayBeBlock(block), 0)) return FreeCached(block, nbytes);
  bool kept = false;
  if (__builtin_expect(IsHome(), 1)) {
    kept = PutQuickly(&home_cache_, block, nbytes);
  } else if (const KnownCache& known = known_caches.At(quick_.id); known.pool_id == quick_.id) {
    kept = PutQuickly(known.cache, block, nbytes);
  }
  if (__builtin_expect(!kept, 0)) FreeCached(block, nbytes);
}

void Pool::FreeCached(void* block, int64_t nbytes) {
  if (__builtin_expect(Cacheable(nbytes, kGrain) && !tracker_.on(), 1)) {
    if (__builtin_expect(MayBeBlock(block) && PutCached(QuickCache(), block, nbytes), 1)) {
      if (__builtin_expect(watermarks_.due(), 0)) CallWatermarks();
      return;
    }
  }
  FreeSlowly(block, nbytes);
}

void Pool::FreeSlowly(void* block, int64_t nbytes) {
  if (guard_ != nullptr) return FreeGuarded(block, nbytes);
  if (!MayBeBlock(block) || nbytes < 0 || nbytes > range_.capacity()) {
    throw BadFree("what is freed is no block of this pool");
  }
  if (tracker_.tracking()) tracker_.Freed(block, nbytes);
  ChargeRef charge = Uncharge(block);
  ThreadCache* mine = nullptr;
  try {
    mine = cache();
  } catch (const std::bad_alloc&) {
    // it goes without
  }
  if (!PutCached(mine, block, nbytes)) FreeUncached(mine, block, nbytes);
  Refund(charge, nbytes);
  if (watermarks_.due()) CallWatermarks();
}

}  // namespace symalloc

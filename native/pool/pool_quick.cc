// The way of most blocks through the pool: to and from what their thread keeps, without the mutex.
#include "pool/pool.h"

namespace symalloc {

[[gnu::always_inline]] inline bool Pool::PutCached(ThreadCache* cache, void* block, int64_t nbytes, int which) {
  if (cache == nullptr || !cache->section.Enter(quick_.closed)) return false;
  int64_t slack = SlackOf(block, Rounded(nbytes), which);
  int64_t size = Rounded(nbytes) + slack;
  bool kept;
  if (ranges_.near_fits(which) && NearFitCache::Takes(size)) {
    kept = cache->near_fits[which].HasRoom(size) && !IsKept(block, size, which);
    if (kept) cache->near_fits[which].Put(block, size);
  } else if (!cache->GoesToBin(which, block, size)) {
    kept = !IsKept(block, size, which) && cache->large_blocks[which].Join(block, size);
  } else {
    SizeBins& bins = cache->bins[which];
    kept = bins.held() + size <= cache->bin_capacity && bins.Put(block, size);
  }
  if (kept) {
    ForgetSlack(cache, block, slack, which);
    cache->CountFree(nbytes);
  }
  cache->section.Leave();
  return kept;
}

// Of a block that comes from a cache.
void Pool::NoteSlack(ThreadCache* cache, const Piece& piece, int64_t slack, int which) {
  ranges_.slack(which).Note(static_cast<char*>(piece.block) - ranges_.base(which), piece.nbytes, slack);
  cache->slack.Add(slack);
}

// Of a block that is freed, with its slack.
void Pool::ForgetSlack(ThreadCache* cache, const void* block, int64_t slack, int which) {
  if (__builtin_expect(slack == 0, 1)) return;
  int64_t offset = static_cast<const char*>(block) - ranges_.base(which);
  if (!ranges_.slack(which).IsKept(offset)) ranges_.slack(which).Forget(offset);
  caches_.CountSlackFreed(cache, slack);
}

// Small blocks of which one was freed last; it saves no registers, and looks at three cache lines.
void* Pool::Alloc(int64_t nbytes, int64_t align, bool escapes, std::string_view tag) {
  ThreadCache* cache = QuickCache();
  uint64_t last = static_cast<uint64_t>(nbytes) - 1;  // of its bytes
  bool quick = last < quick_.alloc_most && align <= kGrain && quick_.tracked.load(std::memory_order_relaxed) == 0 &&
               !(escapes && quick_.separate_escaping) && cache != nullptr;
  if (__builtin_expect(quick && cache->section.Enter(quick_.closed), 1)) {
    void* block = cache->bins[0].TakeLast(static_cast<int64_t>(last | (kGrain - 1)) + 1);
    if (__builtin_expect(block != nullptr, 1)) {
      cache->CountAlloc(nbytes);
      cache->section.Leave();
      return block;
    }
    cache->section.Leave();
  }
  return AllocCached(nbytes, align, escapes, tag);
}

void* Pool::AllocCached(int64_t nbytes, int64_t align, bool escapes, std::string_view tag) {
  if (__builtin_expect(Cacheable(nbytes, align) && quick_.tracked.load(std::memory_order_relaxed) == 0, 1)) {
    void* block = TakeCached(QuickCache(), nbytes, escapes && quick_.separate_escaping);
    if (__builtin_expect(block != nullptr, 1)) return block;
  }
  return AllocSlowly(nbytes, align, escapes, tag);
}

void* Pool::AllocSlowly(int64_t nbytes, int64_t align, bool escapes, std::string_view tag) {
  return AllocWaiting(nbytes, align, escapes, tag, Patience{wait_});
}

void* Pool::AllocWaiting(int64_t nbytes, int64_t align, bool escapes, std::string_view tag, Patience patience) {
  Request asked{nbytes, align, escapes && quick_.separate_escaping, tag, patience, nullptr};
  if (tracker_.charging()) asked.charge = Sessions::Current(quick_.id);
  bool cacheable = asked.charge == nullptr && Cacheable(nbytes, align);
  void* block = cacheable ? TakeCached(cache(), nbytes, asked.which) : nullptr;
  if (block == nullptr) block = AllocUncached(asked);
  if (tracker_.tracking()) tracker_.Allocated(block, nbytes, escapes, tag);
  return block;
}

// As `Alloc`.
void Pool::Free(void* block, int64_t nbytes) {
  ThreadCache* cache = QuickCache();
  uint64_t last = static_cast<uint64_t>(nbytes) - 1;
  uint64_t offset = reinterpret_cast<uint64_t>(block) - quick_.bases[0];
  bool quick = last < quick_.free_most.load(std::memory_order_relaxed) &&
               quick_.tracked.load(std::memory_order_relaxed) == 0 && offset < quick_.capacity &&
               offset % kGrain == 0 && !quick_.due.load(std::memory_order_relaxed) && cache != nullptr;
  if (__builtin_expect(quick && cache->section.Enter(quick_.closed), 1)) {
    int64_t size = static_cast<int64_t>(last | (kGrain - 1)) + 1;
    if (__builtin_expect(static_cast<char*>(block) + size != cache->front &&
                             cache->bins[0].PutLast(block, size, cache->bin_capacity), 1)) {
      cache->CountFree(nbytes);
      cache->section.Leave();
      return;
    }
    cache->section.Leave();
  }
  FreeCached(block, nbytes);
}

void Pool::FreeCached(void* block, int64_t nbytes) {
  if (__builtin_expect(Cacheable(nbytes, kGrain) && quick_.tracked.load(std::memory_order_relaxed) == 0, 1)) {
    int which = RangeOf(block);
    bool sound = which >= 0 && reinterpret_cast<int64_t>(block) % kGrain == 0;
    if (__builtin_expect(sound && PutCached(QuickCache(), block, nbytes, which), 1)) {
      if (__builtin_expect(quick_.due.load(std::memory_order_relaxed), 0)) CallWatermarks();
      return;
    }
  }
  FreeSlowly(block, nbytes);
}

void Pool::FreeSlowly(void* block, int64_t nbytes) {
  if (guard_ != nullptr) return FreeGuarded(block, nbytes);
  int which = RangeOf(block);
  if (which < 0 || reinterpret_cast<int64_t>(block) % kGrain != 0 || nbytes < 0 || nbytes > ranges_.capacity()) {
    throw BadFree("what is freed is no block of this pool");
  }
  if (tracker_.tracking()) tracker_.Freed(block, nbytes);
  if (tracker_.charging()) Uncharge(block);
  ThreadCache* mine = cache();
  if (!PutCached(mine, block, nbytes, which)) FreeUncached(mine, block, nbytes, which);
  if (watermarks_.due()) CallWatermarks();
}

}  // namespace symalloc

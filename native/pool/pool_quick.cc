// The way of most blocks through the pool: to and from what their thread keeps, without the mutex.
#include "pool/pool.h"

namespace symalloc {

[[gnu::always_inline]] inline bool Pool::PutCached(ThreadCache* cache, void* block, int64_t nbytes, int which) {
  if (cache == nullptr || !cache->section.Enter(caches_.closed())) return false;
  int64_t size = Rounded(nbytes);
  bool kept;
  if (size > bin_largest_) {
    kept = cache->large_blocks[which].Join(block, size);
  } else {
    SizeBins& bins = cache->bins[which];
    kept = bins.held() + size <= bin_capacity_ && bins.Put(block, size);
  }
  if (kept) cache->CountFree(nbytes);
  cache->section.Leave();
  return kept;
}

void* Pool::Alloc(int64_t nbytes, int64_t align, bool escapes, std::string_view tag) {
  if (__builtin_expect(Cacheable(nbytes, align) && recent.pool_id == id_ && !tracker_.on(), 1)) {
    void* block = TakeCached(recent.cache, nbytes, escapes && separate_escaping_);
    if (__builtin_expect(block != nullptr, 1)) return block;
  }
  return AllocSlowly(nbytes, align, escapes, tag);
}

void* Pool::AllocSlowly(int64_t nbytes, int64_t align, bool escapes, std::string_view tag) {
  return AllocWaiting(nbytes, align, escapes, tag, Patience{wait_});
}

void* Pool::AllocWaiting(int64_t nbytes, int64_t align, bool escapes, std::string_view tag, Patience patience) {
  Request asked{nbytes, align, escapes && separate_escaping_, tag, patience, nullptr};
  if (tracker_.charging()) asked.charge = Sessions::Current(id_);
  bool cacheable = asked.charge == nullptr && Cacheable(nbytes, align);
  void* block = cacheable ? TakeCached(cache(), nbytes, asked.which) : nullptr;
  if (block == nullptr) block = AllocUncached(asked);
  if (tracker_.tracking()) tracker_.Allocated(block, nbytes, escapes, tag);
  return block;
}

void Pool::Free(void* block, int64_t nbytes) {
  if (__builtin_expect(Cacheable(nbytes, kGrain) && recent.pool_id == id_ && !tracker_.on(), 1)) {
    int which = ranges_.RangeOf(block);
    bool sound = which >= 0 && reinterpret_cast<int64_t>(block) % kGrain == 0;
    if (__builtin_expect(sound && PutCached(recent.cache, block, nbytes, which), 1)) {
      if (__builtin_expect(watermarks_.due(), 0)) CallWatermarks();
      return;
    }
  }
  FreeSlowly(block, nbytes);
}

void Pool::FreeSlowly(void* block, int64_t nbytes) {
  if (guard_ != nullptr) return FreeGuarded(block, nbytes);
  int which = ranges_.RangeOf(block);
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

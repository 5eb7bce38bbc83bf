#include "pool/thread_caches.h"

#include <utility>

namespace symalloc {

void ThreadCaches::Counts::Add(const ThreadCache& cache) {
  allocs += cache.allocs.load(std::memory_order_relaxed);
  frees += cache.frees.load(std::memory_order_relaxed);
  live += cache.live.left();
}

ThreadCache* ThreadCaches::Add(std::unique_ptr<ThreadCache> cache) {
  caches_.push_back(std::move(cache));
  return caches_.back().get();
}

void ThreadCaches::Remove(const ThreadCache* cache) {
  others_.Add(*cache);
  caches_.erase(std::find_if(caches_.begin(), caches_.end(), [cache](auto& each) { return each.get() == cache; }));
}

void ThreadCaches::CountAlloc(ThreadCache* cache, int64_t nbytes) {
  if (cache != nullptr) return cache->CountAlloc(nbytes);
  ++others_.allocs;
  others_.live += nbytes;
}

void ThreadCaches::CountFree(ThreadCache* cache, int64_t nbytes) {
  if (cache != nullptr) return cache->CountFree(nbytes);
  ++others_.frees;
  others_.live -= nbytes;
}

ThreadCaches::Counts ThreadCaches::counts() const {
  Counts counts = others_;
  for (auto& each : caches_) counts.Add(*each);
  return counts;
}

int64_t ThreadCaches::held() const {
  int64_t held = 0;
  for (auto& each : caches_) held += each->held();
  return held;
}

void ThreadCaches::Close() {
  closed_.store(true, std::memory_order_seq_cst);
  HeavyBarrier();
  for (auto& each : caches_) each->section.AwaitLeft();
}

}  // namespace symalloc

// The pool among threads: what each of them has of it, and what is done when they end or the process forks.
#include <algorithm>
#include <utility>

#include "pool/pool.h"
#include "pool/pool_registry.h"

namespace symalloc {

// The pools that this thread has bins in.  When the thread ends, it hands its blocks back.
struct ThreadDirectory {
  ~ThreadDirectory();
  std::vector<std::pair<uint64_t, ThreadCache*>> entries;
};

namespace {

thread_local bool ended = false;
thread_local ThreadDirectory directory;

}  // namespace

// What belongs to a pool that is gone is never looked at, for ids are not used twice.
__attribute__((tls_model("initial-exec"))) __thread Recent recent;

ThreadDirectory::~ThreadDirectory() {
  ended = true;
  recent = Recent{};
  for (auto& [id, cache] : entries) {
    ThreadCache* mine = cache;
    PoolRegistry::Global().With(id, [mine](Pool* pool) { pool->Retire(mine); });
  }
}

// What the calling thread has of this pool; nullptr once the thread is ending.
ThreadCache* Pool::FindCache() {
  if (ended) return nullptr;
  ThreadCache* found = nullptr;
  for (auto& [id, cache] : directory.entries) {
    if (id == id_) found = cache;
  }
  recent = Recent{id_, found == nullptr ? AddCache() : found};
  return recent.cache;
}

ThreadCache* Pool::AddCache() {
  auto gone = [](const auto& entry) { return !PoolRegistry::Global().Has(entry.first); };
  auto& entries = directory.entries;
  entries.erase(std::remove_if(entries.begin(), entries.end(), gone), entries.end());
  entries.reserve(entries.size() + 1);  // what follows fails before anything is changed, or not at all
  auto fresh = std::make_unique<ThreadCache>();
  ThreadCache* added = fresh.get();
  std::lock_guard<std::mutex> lock(mutex_);
  caches_.push_back(std::move(fresh));
  entries.emplace_back(id_, added);
  return added;
}

void Pool::Retire(ThreadCache* cache) {
  std::lock_guard<std::mutex> lock(mutex_);
  FlushLocked(cache);
  retired_allocs_ += cache->allocs;
  retired_frees_ += cache->frees;
  retired_live_ += cache->live.left();
  caches_.erase(std::find_if(caches_.begin(), caches_.end(), [cache](auto& l) { return l.get() == cache; }));
}

// Nobody else is at any bins once this returns, until `OpenBins`.
void Pool::CloseBinsLocked() {
  closed_.store(true, std::memory_order_seq_cst);
  HeavyBarrier();
  for (auto& cache : caches_) cache->section.AwaitLeft();
}

// Empties the bins of all threads but that of `local`; whether anything was in them.
bool Pool::FlushOthersLocked(const ThreadCache* cache) {
  auto holds = [cache](auto& each) { return each.get() != cache && each->held() > 0; };
  if (std::none_of(caches_.begin(), caches_.end(), holds)) return false;
  struct Opener {
    ~Opener() { pool->OpenBins(); }
    Pool* pool;
  };
  Opener opener{this};
  CloseBinsLocked();
  for (auto& each : caches_) {
    if (each.get() != cache) FlushLocked(each.get());
  }
  return true;
}

void Pool::FlushLocked(ThreadCache* cache) {
  if (cache == nullptr) return;
  for (SizeBins& bins : cache->bins) FlushLocked(&bins);
  for (LargeBlockCache& piece : cache->large_blocks) FlushLocked(&piece);
}

void Pool::FlushLocked(SizeBins* bins) {
  bins->Flush([this](void* block, int64_t size) { ReleaseLocked(block, size); });
}

void Pool::FlushLocked(LargeBlockCache* piece) {
  piece->Flush([this](void* block, int64_t size) { ReleaseLocked(block, size); });
}

// For a fork: no thread is in the middle of anything.
void Pool::LockAll() {
  for (std::mutex* mutex : held_at_fork_) mutex->lock();
  CloseBinsLocked();
}

void Pool::UnlockAll() {
  OpenBins();
  for (std::mutex* mutex : held_at_fork_) mutex->unlock();
}

}  // namespace symalloc

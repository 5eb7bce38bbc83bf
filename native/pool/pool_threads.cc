// The pool among threads: what each of them has of it, and what is done when they end or the process forks.
#include <pthread.h>

#include <algorithm>
#include <new>
#include <utility>

#include "pool/decay_thread.h"
#include "pool/pool.h"
#include "pool/pool_registry.h"

namespace symalloc {

namespace {

constexpr int64_t kNearShare = 64;  // of what was in use, a thread may keep this part for blocks of nearly the same size

}  // namespace

namespace {

KnownCache nothing{0, nullptr};  // never written
std::atomic<ThreadId> next_thread{1};
thread_local bool ended = false;

}  // namespace

// Entries of destroyed pools are never used: ids are unique.
__attribute__((tls_model("initial-exec"))) __thread KnownCaches known_caches{&nothing, 0};
__attribute__((tls_model("initial-exec"))) __thread ThreadId this_thread;

// The pools that this thread has bins in.  When the thread ends, it hands its blocks back.
// Ids ascend, so that the lowest bits of an id tell most pools that live at a time apart.
struct ThreadDirectory {
  ~ThreadDirectory();

  // nullptr where there is none.  What is found is in the first place then, where others find it quickly.
  ThreadCache* Find(uint64_t id) {
    if (slots.empty()) return nullptr;
    KnownCache& first = known_caches.At(id);
    for (uint64_t at = id;; at += sizeof(KnownCache)) {
      KnownCache& slot = known_caches.At(at);
      if (slot.pool_id == 0) return nullptr;
      if (slot.pool_id != id) continue;
      std::swap(slot, first);
      return first.cache;
    }
  }

  // Makes room for one pool more; forgets those that are gone.
  void Grow() {
    if (2 * (count + 1) <= slots.size()) return;
    std::vector<KnownCache> kept;
    for (const KnownCache& slot : slots) {
      if (slot.pool_id != 0 && PoolRegistry::Global().Has(slot.pool_id)) kept.push_back(slot);
    }
    size_t size = 8;
    while (size < 4 * (kept.size() + 1)) size *= 2;
    std::vector<KnownCache> empty(size, nothing);
    slots.swap(empty);
    known_caches = {slots.data(), (size - 1) * sizeof(KnownCache)};
    count = 0;
    for (const KnownCache& slot : kept) Add(slot);
  }

  // There is room, and no such id.
  void Add(const KnownCache& entry) {
    uint64_t at = entry.pool_id;
    while (known_caches.At(at).pool_id != 0) at += sizeof(KnownCache);
    known_caches.At(at) = entry;
    ++count;
  }

  std::vector<KnownCache> slots;  // at most half of them in use
  size_t count = 0;
};

namespace {

thread_local ThreadDirectory directory;

}  // namespace

ThreadDirectory::~ThreadDirectory() {
  ended = true;
  known_caches = {&nothing, 0};
  this_thread = 0;
  for (auto& [id, cache] : slots) {
    ThreadCache* mine = cache;
    PoolRegistry::Global().With(id, [mine](Pool* pool) { pool->Retire(mine); });
  }
}

// The cache of the calling thread; nullptr once the thread is ending.
ThreadCache* Pool::FindCache() {
  if (ended) return nullptr;
  ThreadCache* found = directory.Find(quick_.id);
  return found == nullptr ? AddCache() : found;
}

ThreadCache* Pool::AddCache() {
  directory.Grow();  // what follows fails before anything is changed, or not at all
  if (this_thread == 0) this_thread = next_thread.fetch_add(1);
  std::lock_guard<std::mutex> lock(mutex_);
  bool at_home = quick_.home.load(std::memory_order_relaxed) == kNoThread;
  auto another = [this] { return std::make_unique<ThreadCache>(home_cache_.bin_largest, home_cache_.bin_capacity); };
  ThreadCache* added = at_home ? caches_.AddHome() : caches_.Add(another());
  directory.Add({quick_.id, added});
  if (at_home) quick_.home.store(this_thread, std::memory_order_relaxed);
  return added;
}

void Pool::Retire(ThreadCache* cache) {
  std::lock_guard<std::mutex> lock(mutex_);
  FlushLocked(cache);
  WakeLocked();
  if (cache == &home_cache_) quick_.home.store(kNoThread, std::memory_order_relaxed);
  caches_.Remove(cache);
}

// Without memory for the free list the block waits until there is some.
void Pool::ReleaseLocked(void* block, int64_t size) {
  try {
    range_.Free(block, size);
  } catch (const std::bad_alloc&) {
    deferred_ = new (block) Deferred{deferred_, size};
    return;
  }
  NoteUsed(-size);
}

void Pool::ReleaseDeferredLocked() {
  for (Deferred* next = std::exchange(deferred_, nullptr); next != nullptr;) {
    Deferred each = *next;
    ReleaseLocked(next, each.size);
    next = each.next;
  }
}

// Keeps a block in place of the large blocks that are kept.  One thread may keep as much as the pool ever used: what the
// largest programs free last serves next, and no more than one such piece is idle.
void Pool::KeepLocked(ThreadCache* cache, void* block, int64_t size) {
  bool choosy = range_.Crowded();
  int64_t most = large_block_capacity_;
  if (size > most && (most_holder_ == nullptr || most_holder_ == cache)) {
    most_holder_ = cache;
    most = std::max(most, range_.peak_in_use);
  }
  LargeBlockCache& large = cache->large_block;
  large.Flush([this](void* freed, int64_t freed_size) { ReleaseLocked(freed, freed_size); });
  range_.CheckAllocated(block, size);
  large.Allow(most, choosy);
  if (!large.Join(block, size)) ReleaseLocked(block, size);
}

// Keeps a block for blocks of nearly its size, in place of others.
void Pool::KeepNearLocked(ThreadCache* cache, void* block, int64_t size) {
  NearFitCache& near_fits = cache->near_fits;
  range_.CheckAllocated(block, size);
  near_fits.MakeRoom(size, std::max(large_block_capacity_, range_.peak_in_use / kNearShare), &range_.slack(),
                     range_.base(), [this](void* freed, int64_t freed_size) { ReleaseLocked(freed, freed_size); });
  if (!near_fits.HasRoom(size)) return ReleaseLocked(block, size);
  near_fits.Put(block, size);
}

// Memory is so scarce that no block may have more than it asked for, now or later.
void Pool::FreeSlackLocked() {
  if (range_.scarce() && caches_.slack() == 0) return;
  range_.EndNearFits();
  caches_.WhileClosed([this] {
    range_.FreeSlack([this](int64_t freed) {
      caches_.CountSlackFreed(nullptr, freed);
      NoteUsed(-freed);
    });
  });
}

void Pool::FlushLocked(ThreadCache* cache) {
  if (cache == nullptr) return;
  cache->Flush([this](void* block, int64_t size) { ReleaseLocked(block, size); });
  if (most_holder_ == cache) most_holder_ = nullptr;
}

bool Pool::FlushOthersLocked(const ThreadCache* mine) {
  if (most_holder_ != mine) most_holder_ = nullptr;
  return caches_.FlushOthers(mine, [this](void* block, int64_t size) { ReleaseLocked(block, size); });
}

// For a fork: no thread is in the middle of anything.
void Pool::LockAll() {
  for (std::mutex* mutex : held_at_fork_) mutex->lock();
  caches_.Close();
}

void Pool::UnlockAll() {
  caches_.Open();
  for (std::mutex* mutex : held_at_fork_) mutex->unlock();
}

// In a forked process, which has none of the threads that give pages back, or wait for that or for memory.
void Pool::Inherit() {
  range_.limbo.Inherit();
  queue_.Forget();
  sessions_.Inherit(quick_.id);
  tracker_.SetCharging(sessions_.any());
  caches_.LetOpen();
  waiting_ = 0;
  new (&departed_) std::condition_variable;  // which may not be destroyed while it knows of threads that wait
}

PoolRegistry& PoolRegistry::Global() {
  static PoolRegistry* registry = new PoolRegistry();  // outlives every thread
  return *registry;
}

// A fork copies memory as it is; nobody may be in the middle of changing it, nor hold a lock in the child.
PoolRegistry::PoolRegistry() { pthread_atfork(BeforeFork, AfterFork, InChild); }

void PoolRegistry::Add(uint64_t id, Pool* pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  pools_[id] = pool;
}

void PoolRegistry::Remove(uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  pools_.erase(id);
}

bool PoolRegistry::Has(uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  return pools_.count(id) != 0;
}

void PoolRegistry::BeforeFork() {
  PoolRegistry& registry = Global();
  registry.mutex_.lock();
  for (auto& [_, pool] : registry.pools_) pool->LockAll();
  DecayThread::Global().BeforeFork();
}

void PoolRegistry::InChild() {
  for (auto& [_, pool] : Global().pools_) pool->Inherit();
  DecayThread::Global().Inherit();
  AfterFork();
}

void PoolRegistry::AfterFork() {
  PoolRegistry& registry = Global();
  DecayThread::Global().AfterFork();
  for (auto& [_, pool] : registry.pools_) pool->UnlockAll();
  registry.mutex_.unlock();
}

}  // namespace symalloc

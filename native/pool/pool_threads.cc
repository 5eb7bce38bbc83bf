// The pool among threads: what each of them has of it, and what is done when they end or the process forks.
#include <pthread.h>

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

// Entries of destroyed pools are never used: ids are unique.
__attribute__((tls_model("initial-exec"))) __thread Recent recent;

ThreadDirectory::~ThreadDirectory() {
  ended = true;
  recent = Recent{};
  for (auto& [id, cache] : entries) {
    ThreadCache* mine = cache;
    PoolRegistry::Global().With(id, [mine](Pool* pool) { pool->Retire(mine); });
  }
}

// The cache of the calling thread; nullptr once the thread is ending.
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
  std::lock_guard<std::mutex> lock(mutex_);
  ThreadCache* added = caches_.Add(std::move(fresh));
  entries.emplace_back(id_, added);
  return added;
}

void Pool::Retire(ThreadCache* cache) {
  std::lock_guard<std::mutex> lock(mutex_);
  FlushLocked(cache);
  caches_.Remove(cache);
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

PoolRegistry& PoolRegistry::Global() {
  static PoolRegistry* registry = new PoolRegistry();  // outlives every thread
  return *registry;
}

// A fork copies memory as it is; nobody may be in the middle of changing it, nor hold a lock in the child.
PoolRegistry::PoolRegistry() { pthread_atfork(BeforeFork, AfterFork, AfterFork); }

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
}

void PoolRegistry::AfterFork() {
  PoolRegistry& registry = Global();
  for (auto& [_, pool] : registry.pools_) pool->UnlockAll();
  registry.mutex_.unlock();
}

}  // namespace symalloc

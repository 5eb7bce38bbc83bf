#include "pool/pool_registry.h"

#include <pthread.h>

#include "pool/pool.h"

namespace symalloc {

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

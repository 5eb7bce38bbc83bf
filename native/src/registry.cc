#include "registry.h"

#include <pthread.h>

#include "pool.h"

namespace symalloc {

Registry& Registry::Global() {
  static Registry* registry = new Registry();  // outlives every thread
  return *registry;
}

// A fork copies memory as it is; nobody may be in the middle of changing it, nor hold a lock in the child.
Registry::Registry() { pthread_atfork(BeforeFork, AfterFork, AfterFork); }

void Registry::Add(uint64_t id, Pool* pool) {
  std::lock_guard<std::mutex> lock(mutex_);
  pools_[id] = pool;
}

void Registry::Remove(uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  pools_.erase(id);
}

bool Registry::Has(uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  return pools_.count(id) != 0;
}

void Registry::BeforeFork() {
  Registry& registry = Global();
  registry.mutex_.lock();
  for (auto& [_, pool] : registry.pools_) pool->LockAll();
}

void Registry::AfterFork() {
  Registry& registry = Global();
  for (auto& [_, pool] : registry.pools_) pool->UnlockAll();
  registry.mutex_.unlock();
}

}  // namespace symalloc

// All pools of the process, so that threads that end and processes that fork find them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "pool/pool.h"

namespace symalloc {

class PoolRegistry {
 public:
  static PoolRegistry& Global();

  // Never the same twice, and never 0: see KnownCaches.
  uint64_t NewId() { return next_.fetch_add(sizeof(KnownCache)); }

  // Adds a pool that is wholly made.
  void Add(uint64_t id, Pool* pool);
  void Remove(uint64_t id);

  bool Has(uint64_t id);

  // Calls use(pool) while the pool cannot go; nothing where it is gone.
  template <typename Use>
  void With(uint64_t id, Use use) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = pools_.find(id);
    if (found != pools_.end()) use(found->second);
  }

 private:
  PoolRegistry();
  static void BeforeFork();
  static void AfterFork();
  static void InChild();

  std::mutex mutex_;  // taken before a pool's own
  std::atomic<uint64_t> next_{sizeof(KnownCache)};
  std::map<uint64_t, Pool*> pools_;
};

}  // namespace symalloc

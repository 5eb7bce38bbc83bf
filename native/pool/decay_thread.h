// The thread that asks all pools with a decay what they need no more.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

namespace symalloc {

class Pool;

// One thread for the process, which runs while there is such a pool, and sleeps from one period's end to the next.
class DecayThread {
 public:
  static DecayThread& Global();

  // Has the pool asked every `seconds`.
  void Add(uint64_t id, Pool* pool, double seconds);

  // Returns once the thread is done with the pool.
  void Remove(uint64_t id);

  // Starts the thread where a fork has left it behind.
  void Ensure() {
    if (!running_.load(std::memory_order_relaxed)) Start();
  }

  // For a fork.
  void BeforeFork() { mutex_.lock(); }
  void AfterFork() { mutex_.unlock(); }
  void Inherit();

 private:
  struct Asked {
    Pool* pool;
    double every, at;  // seconds
  };

  void Start();
  void StartLocked();
  void Run();
  void Ask(std::unique_lock<std::mutex>* lock, uint64_t id, Asked* asked);

  std::mutex mutex_;  // no other is taken while it is held
  std::condition_variable changed_;
  std::map<uint64_t, Asked> pools_;
  uint64_t asking_ = 0;  // the pool that is asked now, without the mutex; 0: none
  std::atomic<bool> running_{false};
};

}  // namespace symalloc

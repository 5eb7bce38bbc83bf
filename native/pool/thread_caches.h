// The caches of all threads of one pool, and the counts of its allocations and frees.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pool/barrier.h"
#include "pool/thread_cache.h"

namespace symalloc {

// All but the flags is guarded by the pool's mutex.
class ThreadCaches {
 public:
  struct Counts {
    int64_t allocs = 0, frees = 0;
    int64_t live = 0;  // bytes asked for
    int64_t slack = 0;  // bytes

    void Add(const ThreadCache& cache) {
      allocs += cache.allocs.load(std::memory_order_relaxed);
      frees += cache.frees.load(std::memory_order_relaxed);
      live += cache.live.left();
      slack += cache.slack.left();
    }
  };

  // `flags` and `home` outlive this.
  ThreadCaches(QuickFlags* flags, ThreadCache* home) : flags_(*flags), home_(home) {}

  // For one thread at a time the cache that the pool has within itself.
  ThreadCache* AddHome() {
    caches_.emplace_back(home_, Drop{home_});
    return home_;
  }
  ThreadCache* Add(std::unique_ptr<ThreadCache> cache) {
    caches_.emplace_back(cache.get(), Drop{home_});
    return cache.release();
  }

  // Keeps the counts of a cache, which is empty, and destroys it.
  void Remove(ThreadCache* cache) {
    others_.Add(*cache);
    cache->ResetCounts();
    caches_.erase(std::find_if(caches_.begin(), caches_.end(), [cache](auto& each) { return each.get() == cache; }));
  }

  // Counts for a thread's cache; nullptr: for a thread that has none.
  void CountAlloc(ThreadCache* cache, int64_t nbytes) {
    if (cache != nullptr) return cache->CountAlloc(nbytes);
    ++others_.allocs;
    others_.live += nbytes;
  }
  void CountFree(ThreadCache* cache, int64_t nbytes) {
    if (cache != nullptr) return cache->CountFree(nbytes);
    ++others_.frees;
    others_.live -= nbytes;
  }

  // The same for slack that is freed.
  void CountSlackFreed(ThreadCache* cache, int64_t nbytes) {
    if (cache != nullptr) return cache->slack.Remove(nbytes);
    others_.slack -= nbytes;
  }

  // Bytes that blocks have beyond what they asked for.
  int64_t slack() const {
    int64_t slack = others_.slack;
    for (auto& each : caches_) slack += each->slack.left();
    return slack;
  }

  Counts counts() const {
    Counts counts = others_;
    for (auto& each : caches_) counts.Add(*each);
    return counts;
  }

  int64_t threads() const { return static_cast<int64_t>(caches_.size()); }

  // Once this returns, and until as many calls of `Open`, no other thread is at any cache.
  void Close() {
    if (closed_++ > 0) return;
    flags_.Set(QuickFlags::kClosed, true);
    HeavyBarrier();
    for (auto& each : caches_) each->section.AwaitLeft();
  }
  void Open() { flags_.Set(QuickFlags::kClosed, --closed_ > 0); }

  // Calls action() while no other thread is at any cache.
  template <typename Action>
  auto WhileClosed(Action action) {
    struct Opener {
      ~Opener() { caches->Open(); }
      ThreadCaches* caches;
    } opener{this};
    Close();
    return action();
  }

  // Closes until `LetOpen`.
  void KeepClosed() {
    if (!std::exchange(kept_, true)) Close();
  }
  void LetOpen() {
    if (std::exchange(kept_, false)) Open();
  }

  // Empties all caches but `mine`; false where nothing was in them.
  template <typename Release>
  bool FlushOthers(const ThreadCache* mine, Release release) {
    return FlushWhere([mine](const ThreadCache& each) { return &each != mine; },
                      [&release](ThreadCache* each) { each->Flush(release); });
  }

  // Calls flush(cache) for those whose threads have neither allocated nor freed since this was called last.
  template <typename Flush>
  void FlushIdle(Flush flush) {
    FlushWhere([](const ThreadCache& each) { return each.seen == Operations(each); }, flush);
    for (auto& each : caches_) each->seen = Operations(*each);
  }

 private:
  static int64_t Operations(const ThreadCache& cache) {
    return cache.allocs.load(std::memory_order_relaxed) + cache.frees.load(std::memory_order_relaxed);
  }

  template <typename Which, typename Flush>
  bool FlushWhere(Which which, Flush flush) {
    auto holds = [&](auto& each) { return which(*each) && each->held() > 0; };
    if (std::none_of(caches_.begin(), caches_.end(), holds)) return false;
    WhileClosed([&] {
      for (auto& each : caches_) {
        if (holds(each)) flush(each.get());
      }
    });
    return true;
  }

  struct Drop {
    void operator()(ThreadCache* cache) const {
      if (cache != home) delete cache;
    }
    const ThreadCache* home;
  };

  QuickFlags& flags_;
  ThreadCache* const home_;
  bool kept_ = false;
  int closed_ = 0;  // as often as it is
  std::vector<std::unique_ptr<ThreadCache, Drop>> caches_;
  Counts others_;  // of threads that have ended, or have no cache
};

}  // namespace symalloc

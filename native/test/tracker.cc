// Threads that allocate, tag and free blocks of one pool at its limit, wait for memory and share sessions, while another opens and closes scopes,
// records, adds and removes callbacks and moves the limit.  For sanitizers.  Exit status 1 where the counts at
// rest are not exact.  Usage: symalloc_tracker [threads] [operations of each]
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/pool.h"

using symalloc::Options;
using symalloc::OutOfMemory;
using symalloc::Pool;
using symalloc::Watermark;

namespace {

constexpr int64_t kMiB = 1 << 20;

std::atomic<int64_t> calls{0}, refused{0};
std::shared_ptr<symalloc::Session> outer, inner;

// In a session for a while.
struct Within {
  Within(Pool* pool, const std::shared_ptr<symalloc::Session>& session) : pool(pool), session(session) {
    pool->EnterSession(session);
  }
  ~Within() { pool->LeaveSession(session.get()); }
  Pool* pool;
  const std::shared_ptr<symalloc::Session>& session;
};

void* Allocate(Pool* pool, int64_t nbytes, int64_t i, std::mt19937* random) {
  const char* tag = i % 3 ? "a" : "";
  std::optional<Within> within;
  if (i / 500 % 2) within.emplace(pool, i % 2 ? inner : outer);
  if ((*random)() % 8) return pool->Alloc(nbytes, 64, tag);
  return pool->AllocWaiting(nbytes, 64, tag, symalloc::Patience{200'000, true});
}

void Work(Pool* pool, int64_t operations, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::pair<void*, int64_t>> live;
  for (int64_t i = 0; i < operations; ++i) {
    if (live.size() < 20 && random() % 2) {
      int64_t nbytes = random() % (random() % 10 ? 2000 : 900'000);
      try {
        void* block = Allocate(pool, nbytes, i, &random);
        if (i % 7 == 0) pool->Tag(block, nbytes, "tag" + std::to_string(i % 5));
        live.emplace_back(block, nbytes);
      } catch (const OutOfMemory&) {
        ++refused;
      }
    } else if (!live.empty()) {
      pool->Free(live.back().first, live.back().second);
      live.pop_back();
    }
  }
  for (auto [block, nbytes] : live) pool->Free(block, nbytes);
}

void Touch(Pool* pool) {
  try {
    pool->Free(pool->Alloc(100, 64), 100);
  } catch (const OutOfMemory&) {
    ++refused;
  }
}

void Observe(Pool* pool, const std::atomic<bool>* stop) {
  for (int i = 0; !*stop; ++i) {
    int64_t scope = pool->OpenScope();
    int64_t watermark = pool->AddWatermark(Watermark{0, true, 2 * kMiB, kMiB, [](int64_t) { ++calls; }});
    pool->tracker().StartRecording(1 + i % 1000);
    int64_t call = pool->tracker().BeginCall();
    Touch(pool);
    pool->tracker().EndCall(call);
    pool->tracker().AllTagged();
    pool->Layout();
    if (i % 10 == 0) pool->ResetPeak();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool->tracker().StopRecording();
    pool->tracker().Recorded();
    pool->ReadScope(scope);
    pool->CloseScope(scope);
    pool->SetLimit((2 + i % 3) * kMiB);
    pool->SetSessionLimit(inner.get(), (1 + i % 2) * kMiB / 2);
    pool->HeldBy(outer.get());
    pool->ReadSession(inner.get());
    pool->RemoveWatermark(watermark);
  }
}

}  // namespace

int main(int count, char** arguments) {
  int threads = count > 1 ? std::atoi(arguments[1]) : 4;
  int64_t operations = count > 2 ? std::atoll(arguments[2]) : 20'000;
  Options options;
  options.limit = 2 * kMiB;
  Pool pool(options);
  outer = pool.OpenSession("outer", kMiB);
  pool.EnterSession(outer);
  inner = pool.OpenSession("inner", kMiB / 2);
  pool.LeaveSession(outer.get());
  pool.AddWatermark(Watermark{0, true, 2 * kMiB, kMiB, [&](int64_t) { calls += pool.statistics().threads > 0; }});
  pool.AddWatermark(Watermark{0, false, kMiB, 3 * kMiB / 2, [&](int64_t) { Touch(&pool); }});
  pool.SetOnOom([&](int64_t, int64_t tries, const std::string&) { return ++calls, pool.Trim(), tries < 2; }, 3);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(Work, &pool, operations, i);
  std::atomic<bool> stop{false};
  std::thread observer(Observe, &pool, &stop);
  for (std::thread& worker : workers) worker.join();
  stop = true;
  observer.join();
  std::thread([&] { pool.EnterSession(outer); }).join();  // it leaves when it ends
  pool.ClearCallbacks();  // trimming would call one that allocates
  pool.Trim();
  symalloc::Statistics s = pool.statistics();
  std::printf("%lld callbacks, %lld refused; live %lld, used %lld, reserved %lld\n",
              static_cast<long long>(calls.load()), static_cast<long long>(s.refused), static_cast<long long>(s.live),
              static_cast<long long>(s.used), static_cast<long long>(s.reserved));
  bool exact = s.live == 0 && s.used == 0 && s.reserved == 0 && s.refused == refused && !pool.tracker().on();
  for (const auto& session : {outer, inner}) {
    auto counted = pool.ReadSession(session.get());
    exact = exact && counted.live == 0 && counted.allocs == counted.frees && counted.allocs > 0 && counted.refused > 0;
  }
  return exact && calls > 0 ? 0 : 1;
}

// Threads that take large blocks, write every page, check and free them, while others trim the pool, wholly or a part
// at a time, pages decay, and the process forks; then pools that are closed and destroyed amid a trim.  Exit status 1 where a page
// is lost, what fits under the limit is refused, a forked process cannot go on, or the statistics at rest are not
// exact.  Usage: symalloc_trimming [operations of each thread]
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "pool/pool.h"

using symalloc::Options;
using symalloc::OutOfMemory;
using symalloc::Pool;

namespace {

constexpr int64_t kMiB = 1 << 20, kPage = 4096;
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadsAfterFork = false;  // are more than ThreadSanitizer can
#else
constexpr bool kThreadsAfterFork = true;
#endif
constexpr int kForks = 20;

std::atomic<int64_t> faults{0};

void Fault(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  ++faults;
}

struct Block {
  uint64_t* data;
  int64_t nbytes;
  uint64_t stamp;
};

template <typename Visit>
void ForPages(const Block& block, Visit visit) {
  for (int64_t at = 0; at < block.nbytes; at += kPage) visit(block.data[at / static_cast<int64_t>(sizeof(uint64_t))]);
}

Block Made(Pool* pool, int64_t nbytes, uint64_t stamp) {
  Block block{static_cast<uint64_t*>(pool->Alloc(nbytes, 64)), nbytes, stamp};
  ForPages(block, [&](uint64_t& word) { word = stamp; });
  return block;
}

bool Whole(const Block& block) {
  bool whole = true;
  ForPages(block, [&](uint64_t word) { whole = whole && word == block.stamp; });
  return whole;
}

void Drop(Pool* pool, const Block& block) {
  if (!Whole(block)) Fault("a page is lost");
  pool->Free(block.data, block.nbytes);
}

// 64 KiB to 8 MiB.
void Work(Pool* pool, int64_t operations, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Block> kept;
  for (int64_t i = 0; i < operations; ++i) {
    if (kept.size() < 8 && random() % 2) {
      int64_t most = kMiB / 16 << random() % 8;
      kept.push_back(Made(pool, kPage + static_cast<int64_t>(random() % most), random()));
    } else if (!kept.empty()) {
      std::swap(kept[random() % kept.size()], kept.back());
      Drop(pool, kept.back());
      kept.pop_back();
    }
  }
  for (const Block& block : kept) Drop(pool, block);
}

// All of the limit, again and again: whatever is on its way back to the system, it fits.
void Fill(Pool* pool, int64_t limit, int64_t operations) {
  for (int64_t i = 0; i < operations; ++i) {
    try {
      int64_t nbytes = i % 2 ? limit : limit / 2;
      Drop(pool, Made(pool, nbytes, static_cast<uint64_t>(i)));
    } catch (const OutOfMemory& error) {
      Fault(error.what());
    }
  }
}

// A thread that trims until it goes.
class Trimmer {
 public:
  // `parts`: after so many each trim stops; 0: it does not.
  Trimmer(Pool* pool, int parts) : thread_([this, pool, parts] {
      while (!stop_) {
        int left = parts;
        pool->Trim([&left] { return --left != 0; });
        std::this_thread::yield();
      }
    }) {}
  ~Trimmer() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void Fork(Pool* pool, const Block& mine) {
  pid_t child = fork();
  if (child == 0) {
    alarm(60);   // ends it where it hangs
    faults = 0;  // those of the parent are known
    if (!Whole(mine)) _exit(1);
    for (int64_t nbytes : {kMiB, 16 * kMiB}) Drop(pool, Made(pool, nbytes, 7));
    pool->Trim();
    _exit(faults.load() == 0 && Whole(mine) ? 0 : 1);
  }
  int status = 1;
  if (child < 0) return Fault("the process cannot be forked");
  if (waitpid(child, &status, 0) == child && status == 0) return;
  std::fprintf(stderr, "wait status %d: ", status);
  Fault("a forked process cannot go on");
}

void Rest(Pool* pool) {
  pool->Trim();
  symalloc::Statistics s = pool->statistics();
  if (s.live != 0 || s.used != 0 || s.reserved != 0) Fault("the statistics at rest are not exact");
}

void Trimmed(const Options& options, int64_t operations) {
  Pool pool(options);
  Block mine = Made(&pool, 3 * kMiB, 5);
  {
    Trimmer whole(&pool, 0), parts(&pool, 1);
    std::vector<std::thread> workers;
    for (uint64_t seed : {1, 2, 3}) workers.emplace_back(Work, &pool, operations, seed);
    for (int i = 0; i < kForks; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (options.decay == 0 || kThreadsAfterFork) Fork(&pool, mine);
    }
    for (std::thread& worker : workers) worker.join();
  }
  Drop(&pool, mine);
  Rest(&pool);
}

void Filled(Options options, int64_t operations) {
  options.limit = 32 * kMiB;
  Pool pool(options);
  {
    Trimmer whole(&pool, 0), parts(&pool, 3);
    Fill(&pool, options.limit, operations);
  }
  Rest(&pool);
}

void Closed(const Options& options) {
  for (int i = 0; i < 20; ++i) {
    Pool pool(options);
    std::vector<Block> blocks;
    for (uint64_t stamp = 0; stamp < 16; ++stamp) blocks.push_back(Made(&pool, 2 * kMiB, stamp));
    for (uint64_t stamp = 0; stamp < 15; ++stamp) Drop(&pool, blocks[stamp]);
    std::thread trimming([&pool] { pool.Trim(); });
    if (i % 2) std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
    pool.Close();
    Drop(&pool, blocks[15]);
    trimming.join();
    if (pool.statistics().reserved != 0) Fault("a closed pool keeps memory");
  }
}

}  // namespace

int main(int count, char** arguments) {
  int64_t operations = count > 1 ? std::atoll(arguments[1]) : 2000;
  for (bool huge : {true, false}) {
    Options options;
    options.huge = huge;
    Trimmed(options, operations);
    options.decay = 0.001;
    Trimmed(options, operations);
    options.bin_capacity = huge ? options.bin_capacity : 0;
    Filled(options, operations / 10);
    Closed(options);
  }
  std::printf("%lld faults\n", static_cast<long long>(faults.load()));
  return faults.load() == 0 ? 0 : 1;
}

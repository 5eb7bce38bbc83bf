// How long allocations take while another thread gives the free memory of their pool back, and while it does nothing but
// run.  Prints, for each of the two, milliseconds: the longest, the 99.9th percentile, the longest but for the time in
// which the system let the thread wait for a processor; and the number of allocations.
// Usage: symalloc_wait MEBIBYTES [0|1: of huge pages] [rounds]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "pool/pool.h"

namespace {

using symalloc::Pool;
using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

// For how long the thread that has made it could have run and had no processor.
class Delay {
 public:
  Delay() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~Delay() { close(file_); }
  double milliseconds() const {
    char text[128];
    ssize_t size = pread(file_, text, sizeof text - 1, 0);
    if (size <= 0) return 0;
    text[size] = '\0';
    char* second = std::strchr(text, ' ');
    return second == nullptr ? 0 : std::strtod(second, nullptr) * 1e-6;
  }

 private:
  int file_;
};

struct Waits {
  std::vector<double> all, without_delay;  // ms

  void Print() {
    std::sort(all.begin(), all.end());
    double most = *std::max_element(without_delay.begin(), without_delay.end());
    std::printf("%.4f %.4f %.4f %zu\n", all.back(), all[all.size() - 1 - all.size() / 1000], most, all.size());
  }
};

// Allocates 64 KiB to 8 MiB, writes the first byte, and keeps sixteen blocks, until another thread has done `work`.
void AllocateBeside(Pool* pool, const std::function<void()>& work, Waits* waits) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    work();
    done = true;
  });
  Delay delay;
  std::mt19937_64 random(3);
  std::vector<std::pair<char*, int64_t>> kept;
  auto drop = [&] {
    pool->Free(kept.back().first, kept.back().second);
    kept.pop_back();
  };
  while (!done) {
    int64_t nbytes = static_cast<int64_t>(1 + random() % 128) << 16;
    double delayed = delay.milliseconds();
    auto begin = Clock::now();
    auto* block = static_cast<char*>(pool->Alloc(nbytes, 64, false));
    block[0] = 1;
    double taken = Milliseconds(begin);
    waits->all.push_back(taken);
    waits->without_delay.push_back(std::max(0.0, taken - (delay.milliseconds() - delayed)));
    kept.emplace_back(block, nbytes);
    if (kept.size() < 16) continue;
    std::swap(kept[random() % kept.size()], kept.back());
    drop();
  }
  while (!kept.empty()) drop();
  other.join();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  int64_t nbytes = std::atoll(arguments[1]) << 20;
  int rounds = count > 3 ? std::atoi(arguments[3]) : 1;
  symalloc::Options options;
  options.huge = count > 2 && std::atoi(arguments[2]) != 0;
  options.bin_capacity = 0;  // so that each allocation takes the pool's mutex
  Pool pool{options};
  Waits trimmed, run;
  for (int round = 0; round < rounds; ++round) {
    void* block = pool.Alloc(nbytes, 64, false);
    std::memset(block, 1, nbytes);
    pool.Free(block, nbytes);
    auto begin = Clock::now();
    AllocateBeside(&pool, [&] { pool.Trim(); }, &trimmed);
    double taken = Milliseconds(begin);
    AllocateBeside(&pool, [begin = Clock::now(), taken] { while (Milliseconds(begin) < taken) continue; }, &run);
  }
  trimmed.Print();
  run.Print();
}

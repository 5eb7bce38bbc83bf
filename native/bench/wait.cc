// How long allocations take while another thread gives free memory of their pool back, and while it does nothing but run.
// Prints a line for each of the two, in milliseconds: the longest, the 99.9th percentile, the longest but for the time in
// which the thread had no processor although it waited for nothing else, and for how much of that it ran; and their number.
// Usage: symalloc_wait MEBIBYTES [0|1: of huge pages] [rounds]
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
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

#include "bench/warm.h"
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

// Milliseconds that this thread has run.
double Ran() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// How often this thread has slept, as it does to wait for a lock.
long Slept() {
  rusage used;
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

// When a thread did something, and what it had of a processor by then.
struct Moment {
  explicit Moment(const Delay& delay) : delayed(delay.milliseconds()), ran(Ran()), slept(Slept()), at(Clock::now()) {}
  double delayed, ran;
  long slept;
  Clock::time_point at;
};

struct Waits {
  std::vector<double> all;            // ms
  double without_delay = 0, ran = 0;  // ms, of the longest in this sense

  void Note(const Moment& begin, const Moment& end) {
    all.push_back(std::chrono::duration<double, std::milli>(end.at - begin.at).count());
    double running = end.ran - begin.ran;
    // who has not slept and does not run waits for no lock: its virtual processor stood still
    double own = end.slept == begin.slept ? running : all.back() - (end.delayed - begin.delayed);
    if (own <= without_delay) return;
    without_delay = own;
    ran = running;
  }

  void Print() {
    std::sort(all.begin(), all.end());
    double most = all[all.size() - 1 - all.size() / 1000];
    std::printf("%.4f %.4f %.4f %.4f %zu\n", all.back(), most, without_delay, ran, all.size());
  }
};

// Allocates 64 KiB to 8 MiB, writes the first byte, and keeps sixteen blocks, until another thread has done `work`.
void AllocateBeside(Pool* pool, const std::function<void()>& work, Waits* found) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    work();
    done = true;
  });
  Delay delay;
  std::mt19937_64 random(3);
  std::vector<std::pair<void*, int64_t>> kept;
  auto drop = [&] {
    pool->Free(kept.back().first, kept.back().second);
    kept.pop_back();
  };
  while (!done) {
    int64_t nbytes = static_cast<int64_t>(1 + random() % 128) << 16;
    Moment begin(delay);
    void* block = pool->Alloc(nbytes, 64);
    found->Note(begin, Moment(delay));
    *static_cast<volatile char*>(block) = 1;
    kept.emplace_back(block, nbytes);
    if (kept.size() < 16) continue;
    std::swap(kept[random() % kept.size()], kept.back());
    drop();
  }
  while (!kept.empty()) drop();
  other.join();
}

// Makes `nbytes` free pages in the pool, with memory of the machine beside them that was written just before.
void MakeFree(Pool* pool, int64_t nbytes) {
  symalloc::Warm(nbytes / 2 * 3);
  void* block = pool->Alloc(nbytes, 64);
  std::memset(block, 1, nbytes);
  pool->Free(block, nbytes);
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
    MakeFree(&pool, nbytes);
    auto begin = Clock::now();
    AllocateBeside(&pool, [&] { pool.Trim(); }, &trimmed);
    double taken = Milliseconds(begin);
    AllocateBeside(&pool, [begin = Clock::now(), taken] { while (Milliseconds(begin) < taken) continue; }, &run);
  }
  trimmed.Print();
  run.Print();
}

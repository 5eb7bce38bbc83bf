// How long allocations and the first writes to them take while another thread gives free memory of their pool back, while
// it does so and both are of plain mapped memory, and while it does nothing but run.  Prints, for each of the three, a
// line of the allocations alone, of the first writes alone, and of both together, in milliseconds: the longest, the
// 99.9th percentile, the longest but for the time in which the thread had no processor although it waited for nothing
// else, and for how much of that it ran; their number; and hundredths of seconds that the host took from the machine.
// Usage: symalloc_wait MEBIBYTES [0|1: of huge pages] [rounds]
#include <fcntl.h>
#include <sys/mman.h>
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

// Ticks that the host of a virtual machine has run others while this machine had work, since it was started.
long long Stolen() {
  long long stolen = 0;
  if (std::FILE* file = std::fopen("/proc/stat", "r")) {
    if (std::fscanf(file, "cpu %*d %*d %*d %*d %*d %*d %*d %lld", &stolen) != 1) stolen = 0;
    std::fclose(file);
  }
  return stolen;
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

  void Print(long long stolen) {
    std::sort(all.begin(), all.end());
    double most = all[all.size() - 1 - all.size() / 1000];
    std::printf("%.4f %.4f %.4f %.4f %zu %lld\n", all.back(), most, without_delay, ran, all.size(), stolen);
  }
};

struct Case {
  Waits allocated, written, both;
  long long stolen = 0;

  void Print() {
    for (Waits* each : {&allocated, &written, &both}) each->Print(stolen);
  }
};

// Where blocks come from.
struct Source {
  virtual ~Source() = default;
  virtual char* Alloc(int64_t nbytes) = 0;
  virtual void Free(char* block, int64_t nbytes) = 0;
};

struct FromPool final : Source {
  explicit FromPool(Pool* pool) : pool(pool) {}
  char* Alloc(int64_t nbytes) override { return static_cast<char*>(pool->Alloc(nbytes, 64)); }
  void Free(char* block, int64_t nbytes) override { pool->Free(block, nbytes); }
  Pool* pool;
};

// Plain memory of the system, of which each block gets its first page anew.
struct FromSystem final : Source {
  static constexpr int64_t kSlot = 8 << 20, kSlots = 17;  // bytes; one more than blocks are kept
  explicit FromSystem(bool huge) {
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* mapped = mmap(nullptr, kSlot * (kSlots + 1), PROT_READ | PROT_WRITE, how, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    base = reinterpret_cast<char*>((reinterpret_cast<int64_t>(mapped) + kSlot - 1) & -kSlot);
    madvise(base, kSlot * kSlots, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (int64_t at = 0; at < kSlots; ++at) slots.push_back(base + at * kSlot);
  }
  char* Alloc(int64_t) override {
    char* slot = slots.back();
    slots.pop_back();
    return slot;
  }
  void Free(char* block, int64_t nbytes) override {
    madvise(block, nbytes, MADV_DONTNEED);
    slots.push_back(block);
  }
  char* base;
  std::vector<char*> slots;
};

// Allocates 64 KiB to 8 MiB, writes the first byte, and keeps sixteen blocks, until another thread has done `work`.
void AllocateBeside(Source* source, const std::function<void()>& work, Case* found) {
  long long stolen = Stolen();
  std::atomic<bool> done{false};
  std::thread other([&] {
    work();
    done = true;
  });
  Delay delay;
  std::mt19937_64 random(3);
  std::vector<std::pair<char*, int64_t>> kept;
  auto drop = [&] {
    source->Free(kept.back().first, kept.back().second);
    kept.pop_back();
  };
  while (!done) {
    int64_t nbytes = static_cast<int64_t>(1 + random() % 128) << 16;
    Moment begin(delay);
    char* block = source->Alloc(nbytes);
    Moment had(delay);
    *static_cast<volatile char*>(block) = 1;
    Moment end(delay);
    found->allocated.Note(begin, had);
    found->written.Note(had, end);
    found->both.Note(begin, end);
    kept.emplace_back(block, nbytes);
    if (kept.size() < 16) continue;
    std::swap(kept[random() % kept.size()], kept.back());
    drop();
  }
  while (!kept.empty()) drop();
  other.join();
  found->stolen += Stolen() - stolen;
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
  FromPool blocks{&pool};
  FromSystem plain{options.huge};
  Case trimmed, faulted, run;
  for (int round = 0; round < rounds; ++round) {
    MakeFree(&pool, nbytes);
    auto begin = Clock::now();
    AllocateBeside(&blocks, [&] { pool.Trim(); }, &trimmed);
    double taken = Milliseconds(begin);
    MakeFree(&pool, nbytes);
    AllocateBeside(&plain, [&] { pool.Trim(); }, &faulted);
    AllocateBeside(&blocks, [begin = Clock::now(), taken] { while (Milliseconds(begin) < taken) continue; }, &run);
  }
  trimmed.Print();
  faulted.Print();
  run.Print();
}

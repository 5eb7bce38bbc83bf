// One measurement of one allocator.  Prints nanoseconds of an alloc and a free together, or seconds.
//   symalloc_bench pairs ALLOCATOR LIBTVM_RUNTIME small|large [threads]
//   symalloc_bench replay ALLOCATOR LIBTVM_RUNTIME < events      (a BLOCK NBYTES | f BLOCK, a line each)
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocators.h"

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

// Sixteen sizes from 4 to 64 KiB, or a lognormal choice of 16 KiB to 16 MiB.
std::vector<int64_t> Sizes(bool large) {
  std::vector<int64_t> sizes;
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> lognormal(13, 1.5);
  for (int i = 0; i < 4096; ++i) {
    double drawn = large ? lognormal(random) : 4096.0 * static_cast<double>(1 + i * 7 % 16);
    double least = large ? 16 << 10 : 4096, most = large ? 16 << 20 : 65536;
    sizes.push_back(static_cast<int64_t>(drawn < least ? least : drawn > most ? most : drawn));
  }
  return sizes;
}

// The best of five rounds; each thread holds one block at a time.
double Pairs(bench::Allocator* allocator, bool large, int threads) {
  const std::vector<int64_t> sizes = Sizes(large);
  const int64_t rounds = large ? 20 : 200;
  auto work = [&] {
    for (int64_t r = 0; r < rounds; ++r) {
      for (int64_t nbytes : sizes) allocator->Free(allocator->Alloc(nbytes), nbytes);
    }
  };
  work();
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    auto begin = Clock::now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    best = std::min(best, Seconds(begin));
  }
  return best / static_cast<double>(rounds * sizes.size()) * 1e9;
}

struct Event {
  bool alloc;
  size_t block;
  int64_t nbytes;
};

std::vector<Event> Read(size_t* blocks) {
  std::vector<Event> events;
  char kind;
  unsigned long long block;
  while (std::scanf(" %c %llu", &kind, &block) == 2) {
    long long nbytes = 0;
    if (kind == 'a' && std::scanf("%lld", &nbytes) != 1) break;
    *blocks = std::max(*blocks, static_cast<size_t>(block) + 1);
    events.push_back({kind == 'a', static_cast<size_t>(block), nbytes});
  }
  return events;
}

// Every page of a block is written, as a kernel would.
double Replay(bench::Allocator* allocator) {
  size_t count = 0;
  const std::vector<Event> events = Read(&count);
  std::vector<char*> data(count);
  std::vector<int64_t> sizes(count);
  auto begin = Clock::now();
  for (const Event& e : events) {
    if (!e.alloc) {
      allocator->Free(data[e.block], sizes[e.block]);
      continue;
    }
    sizes[e.block] = e.nbytes;
    data[e.block] = static_cast<char*>(allocator->Alloc(e.nbytes));
    for (int64_t at = 0; at < e.nbytes; at += 4096) data[e.block][at] = 1;
  }
  return Seconds(begin);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return 2;
  auto allocator = bench::Make(arguments[2], arguments[3]);
  if (std::string(arguments[1]) == "replay") {
    std::printf("%.6f\n", Replay(allocator.get()));
  } else {
    int threads = count > 5 ? std::atoi(arguments[5]) : 1;
    std::printf("%.2f\n", Pairs(allocator.get(), std::string(arguments[4]) == "large", threads));
  }
  std::fflush(stdout);
  std::_Exit(0);  // what is still live is not torn down
}

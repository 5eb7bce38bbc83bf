// One measurement of one allocator.  Prints nanoseconds of an alloc and a free together, or seconds; malloc is
// whichever was preloaded.
//   symalloc_bench pairs ALLOCATOR LIBTVM_RUNTIME tiny|small|large [threads]
//   symalloc_bench replay ALLOCATOR LIBTVM_RUNTIME < events      (a BLOCK NBYTES | f BLOCK, a line each)
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bindings/vm_layout.h"
#include "pool/pool.h"

namespace {

// The allocators: our pool, TVM's two from the installed wheel, and malloc.

struct Allocator {
  virtual ~Allocator() = default;
  virtual void* Alloc(int64_t nbytes) = 0;
  virtual void Free(void* block, int64_t nbytes) = 0;
};

struct Ours final : Allocator {
  explicit Ours(const symalloc::Options& options) : pool(options) {}
  void* Alloc(int64_t nbytes) override { return pool.Alloc(nbytes, 64, false); }
  void Free(void* block, int64_t nbytes) override { pool.Free(block, nbytes); }
  symalloc::Pool pool;
};

// Plain malloc aligns to 16 bytes, where the others align to 64: some of them are many times slower when asked
// for more.
struct Malloc final : Allocator {
  void* Alloc(int64_t nbytes) override {
    void* block = malloc(nbytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  void Free(void* block, int64_t) override { free(block); }
};

// Type 1 is TVM's naive allocator, 2 its pooled one.
struct Tvm final : Allocator {
  Tvm(const char* library, int type) : type(type) {
    using Get = symalloc::VmAllocator* (*)(DLDevice, int);
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    auto get = reinterpret_cast<Get>(
        dlsym(handle, "_ZN3tvm7runtime6memory13MemoryManager20GetOrCreateAllocatorE8DLDeviceNS1_13AllocatorTypeE"));
    if (get == nullptr) throw std::runtime_error(dlerror());
    tvm = get(kCpu, type);
  }
  void* Alloc(int64_t nbytes) override { return tvm->Alloc(kCpu, nbytes, 64, DLDataType{kDLUInt, 8, 1}).data; }
  void Free(void* block, int64_t nbytes) override {
    // the pooled allocator looks for the size in whole pages
    size_t size = type == 2 ? (nbytes + 4095) / 4096 * 4096 : nbytes;
    tvm->Free(symalloc::VmBuffer{block, size, kCpu, type});
  }
  static constexpr DLDevice kCpu{kDLCPU, 0};
  symalloc::VmAllocator* tvm;
  int type;
};

// "pool", "malloc", "tvm-naive" or "tvm-pooled"; `library` is libtvm_runtime.so.
std::unique_ptr<Allocator> Make(const std::string& name, const char* library) {
  if (name == "pool") return std::make_unique<Ours>(symalloc::Options{});
  if (name == "malloc") return std::make_unique<Malloc>();
  if (name == "tvm-naive") return std::make_unique<Tvm>(library, 1);
  if (name == "tvm-pooled") return std::make_unique<Tvm>(library, 2);
  throw std::invalid_argument("no allocator is called " + name);
}

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

// Sixteen sizes up to 4 KiB ("tiny"), sixteen from 4 to 64 KiB ("small"), or a lognormal choice of 16 KiB to 16 MiB.
std::vector<int64_t> Sizes(const std::string& kind) {
  std::vector<int64_t> sizes;
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> lognormal(13, 1.5);
  int64_t step = kind == "tiny" ? 256 : 4096;
  for (int i = 0; i < 4096; ++i) {
    int64_t drawn = kind == "large" ? static_cast<int64_t>(lognormal(random)) : step * (1 + i * 7 % 16);
    sizes.push_back(kind == "large" ? std::clamp<int64_t>(drawn, 16 << 10, 16 << 20) : drawn);
  }
  return sizes;
}

double Median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median of many rounds, each too short for the system to interrupt most of them; of several threads the
// slowest one's.  Each thread holds one block at a time.
double Pairs(Allocator* allocator, const std::string& kind, int threads) {
  constexpr int kRounds = 3000, kWarm = 100;
  constexpr size_t kPairs = 256;  // of a round
  const std::vector<int64_t> sizes = Sizes(kind);
  std::atomic<int> ready{0};
  std::vector<double> medians(threads);
  auto work = [&](int t) {
    std::vector<double> seconds;
    for (++ready; ready < threads;) std::this_thread::yield();
    for (int r = 0; r < kRounds + kWarm; ++r) {
      const int64_t* nbytes = sizes.data() + r * kPairs % sizes.size();
      auto begin = Clock::now();
      for (size_t i = 0; i < kPairs; ++i) allocator->Free(allocator->Alloc(nbytes[i]), nbytes[i]);
      if (r >= kWarm) seconds.push_back(Seconds(begin));
    }
    medians[t] = Median(std::move(seconds));
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& other : others) other.join();
  return *std::max_element(medians.begin(), medians.end()) / kPairs * 1e9;
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
double Replay(Allocator* allocator) {
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
  auto allocator = Make(arguments[2], arguments[3]);
  if (std::string(arguments[1]) == "replay") {
    std::printf("%.6f\n", Replay(allocator.get()));
  } else {
    int threads = count > 5 ? std::atoi(arguments[5]) : 1;
    std::printf("%.2f\n", Pairs(allocator.get(), arguments[4], threads));
  }
  std::fflush(stdout);
  std::_Exit(0);  // what is still live is not torn down
}

// One measurement of one allocator.  Prints nanoseconds of an alloc and a free together, or seconds of the
// process; malloc is whichever was preloaded.
//   symalloc_bench pairs ALLOCATOR LIBTVM_RUNTIME tiny|small|large [threads]
//   symalloc_bench random|checkerboard ALLOCATOR LIBTVM_RUNTIME BLOCKS [touch]    (and reserved to live at most)
//   symalloc_bench pools ALLOCATOR LIBTVM_RUNTIME POOLS                           (of malloc there is one)
//   symalloc_bench replay ALLOCATOR LIBTVM_RUNTIME < events      (a BLOCK NBYTES | f BLOCK, a line each)
#include <dlfcn.h>
#include <time.h>

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
#include <tuple>
#include <vector>

#include "bench/warm.h"
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
  void* Alloc(int64_t nbytes) override { return pool.Alloc(nbytes, 64); }
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

// Seconds that this process has had of the processors: what others take of a shared machine does not count.
double ProcessSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

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

// Most bytes that are live at once.
int64_t Peak(const std::vector<Event>& events, size_t blocks) {
  std::vector<int64_t> sizes(blocks);
  int64_t live = 0, peak = 0;
  for (const Event& e : events) {
    if (e.alloc) sizes[e.block] = e.nbytes;
    live += e.alloc ? e.nbytes : -sizes[e.block];
    peak = std::max(peak, live);
  }
  return peak;
}

// Every page of a block is written, as a kernel would; as much memory was written before as is live at most, and half.
double Replay(Allocator* allocator) {
  size_t count = 0;
  const std::vector<Event> events = Read(&count);
  std::vector<char*> data(count);
  std::vector<int64_t> sizes(count);
  symalloc::Warm(Peak(events, count) / 2 * 3 + 1);
  double begin = ProcessSeconds();
  for (const Event& e : events) {
    if (!e.alloc) {
      allocator->Free(data[e.block], sizes[e.block]);
      continue;
    }
    sizes[e.block] = e.nbytes;
    data[e.block] = static_cast<char*>(allocator->Alloc(e.nbytes));
    for (int64_t at = 0; at < e.nbytes; at += 4096) data[e.block][at] = 1;
  }
  return ProcessSeconds() - begin;
}

// How a block is used: nothing, its first byte, or every page.
enum class Touch { kNothing, kFirst, kPages };

void Use(void* block, int64_t nbytes, Touch touch) {
  volatile char* data = static_cast<char*>(block);
  if (touch == Touch::kFirst) data[0] = 1;
  for (int64_t at = 0; touch == Touch::kPages && at < nbytes; at += 4096) data[at] = 1;
}

// Blocks of 1 to 256 KiB, each step one of them replaced; or (`checkerboard`) every second one is freed first and the
// gaps are filled with blocks of other sizes.  Nanoseconds of a pair.
double Replacement(Allocator* allocator, int64_t count, Touch touch, bool checkerboard) {
  std::mt19937_64 random(11);
  auto draw = [&random] { return static_cast<int64_t>(1024 + random() % (255 << 10)); };
  if (touch == Touch::kPages) symalloc::Warm(count * (checkerboard ? 48 << 10 : 128 << 10) / 2 * 3);
  std::vector<std::pair<void*, int64_t>> blocks;
  auto make = [&](int64_t nbytes) {
    void* block = allocator->Alloc(nbytes);
    Use(block, nbytes, touch);
    return std::pair(block, nbytes);
  };
  for (int64_t i = 0; i < count; ++i) blocks.push_back(make(checkerboard ? 48 << 10 : draw()));
  if (checkerboard) {
    double begin = ProcessSeconds();
    for (int64_t i = 0; i < count; i += 2) allocator->Free(blocks[i].first, blocks[i].second);
    for (int64_t i = 0; i < count; i += 2) blocks[i] = make(16 << 10 | (random() % (64 << 10)));
    return (ProcessSeconds() - begin) / static_cast<double>(count) * 2e9;
  }
  int64_t steps = 2 * count;
  for (int64_t i = 0; i < 2 * steps; ++i) {
    auto& [block, nbytes] = blocks[random() % count];
    allocator->Free(block, nbytes);
    std::tie(block, nbytes) = make(draw());
  }
  double begin = ProcessSeconds();
  for (int64_t i = 0; i < steps; ++i) {
    auto& [block, nbytes] = blocks[random() % count];
    allocator->Free(block, nbytes);
    std::tie(block, nbytes) = make(draw());
  }
  return (ProcessSeconds() - begin) / static_cast<double>(steps) * 1e9;
}

// Pairs of 4 KiB from each of many allocators in turn.
double Turns(const std::vector<std::unique_ptr<Allocator>>& allocators) {
  std::vector<double> seconds;
  for (int round = 0; round < 2000; ++round) {
    auto begin = Clock::now();
    for (auto& each : allocators) each->Free(each->Alloc(4096), 4096);
    seconds.push_back(Seconds(begin));
  }
  return Median(std::move(seconds)) / static_cast<double>(allocators.size()) * 1e9;
}

int64_t Argument(int count, char** arguments, int index, int64_t otherwise) {
  return count > index ? std::atoll(arguments[index]) : otherwise;
}

double Figure(const std::string& what, int count, char** arguments) {
  std::string name = arguments[2];
  int64_t number = Argument(count, arguments, 4, 0);
  if (what == "pools") {
    std::vector<std::unique_ptr<Allocator>> allocators;
    for (int64_t i = 0; i < number; ++i) allocators.push_back(Make(name, arguments[3]));
    return Turns(allocators);
  }
  auto allocator = Make(name, arguments[3]);
  if (what == "replay") return Replay(allocator.get());
  if (what == "pairs") return Pairs(allocator.get(), arguments[4], static_cast<int>(Argument(count, arguments, 5, 1)));
  auto touch = static_cast<Touch>(Argument(count, arguments, 5, 0));
  double found = Replacement(allocator.get(), number, touch, what == "checkerboard");
  if (auto* ours = dynamic_cast<Ours*>(allocator.get())) {
    symalloc::Statistics s = ours->pool.statistics();
    std::fprintf(stderr, "reserved to used at most: %.4f\n",
                 static_cast<double>(s.peak_reserved) / static_cast<double>(s.peak_used));
  }
  return found;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return 2;
  std::printf("%.6f\n", Figure(arguments[1], count, arguments));
  std::fflush(stdout);
  std::_Exit(0);  // what is still live is not torn down
}

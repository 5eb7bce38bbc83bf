// Threads that allocate, stamp, hand over, check and free blocks of one pool at random, while it is trimmed
// and its limit is met.  Exit status 1 where a stamp is lost, a block is handed out twice, or the statistics at
// rest are not exact.  Usage: symalloc_stress [threads] [operations of each] [seed]
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "pool.h"

using symalloc::Options;
using symalloc::OutOfMemory;
using symalloc::Pool;

namespace {

constexpr int kMailboxes = 256;
constexpr int kKept = 64;  // blocks that a thread holds

struct Block {
  char* data;
  int64_t nbytes;
  uint64_t stamp;
};

std::atomic<Block*> mailboxes[kMailboxes];
std::atomic<int64_t> faults{0};
std::atomic<int64_t> refused{0};
std::atomic<uint64_t> next_stamp{1};

// The stamp stands at the front and at the end of the block.
void Stamp(const Block& block) {
  std::memcpy(block.data, &block.stamp, sizeof block.stamp);
  std::memcpy(block.data + block.nbytes - sizeof block.stamp, &block.stamp, sizeof block.stamp);
}

bool Stamped(const Block& block) {
  return std::memcmp(block.data, &block.stamp, sizeof block.stamp) == 0 &&
         std::memcmp(block.data + block.nbytes - sizeof block.stamp, &block.stamp, sizeof block.stamp) == 0;
}

void Drop(Pool* pool, Block* block) {
  if (!Stamped(*block)) ++faults;
  pool->Free(block->data, block->nbytes);
  delete block;
}

Block* Make(Pool* pool, std::mt19937_64* random) {
  // 16 bytes to 1 MiB, small ones more often
  int64_t most = int64_t{16} << ((*random)() % 17);
  int64_t nbytes = 16 + static_cast<int64_t>((*random)() % most);
  int64_t align = (*random)() % 8 ? 64 : 4096;
  try {
    void* data = pool->Alloc(nbytes, align, (*random)() & 1);
    if (reinterpret_cast<uint64_t>(data) % align != 0) ++faults;
    auto* block = new Block{static_cast<char*>(data), nbytes, next_stamp.fetch_add(1)};
    Stamp(*block);
    return block;
  } catch (const OutOfMemory&) {
    ++refused;
    return nullptr;
  }
}

void Work(Pool* pool, int64_t operations, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Block*> kept;
  for (int64_t i = 0; i < operations; ++i) {
    if (i % 50'000 == 49'999) pool->Trim();
    if (kept.size() == kKept || (!kept.empty() && random() % 2)) {
      std::swap(kept[random() % kept.size()], kept.back());
      Block* block = kept.back();
      kept.pop_back();
      // one in four is left for another thread; what lay there is this thread's to free
      if (random() % 4 == 0) block = mailboxes[random() % kMailboxes].exchange(block);
      if (block != nullptr) Drop(pool, block);
    } else if (Block* block = Make(pool, &random)) {
      kept.push_back(block);
    }
  }
  for (Block* block : kept) Drop(pool, block);
}

int64_t Number(int count, char** arguments, int index, int64_t otherwise) {
  return count > index ? std::atoll(arguments[index]) : otherwise;
}

}  // namespace

int main(int count, char** arguments) {
  int64_t threads = Number(count, arguments, 1, 8);
  int64_t operations = Number(count, arguments, 2, 100'000);
  int64_t seed = Number(count, arguments, 3, 1);
  Options options;
  options.apart = true;
  options.limit = threads * (int64_t{3} << 20);
  Pool pool(options);
  std::vector<std::thread> workers;
  for (int64_t i = 0; i < threads; ++i) workers.emplace_back(Work, &pool, operations, seed * 1000 + i);
  for (std::thread& worker : workers) worker.join();
  for (auto& mailbox : mailboxes) {
    if (Block* block = mailbox.exchange(nullptr)) Drop(&pool, block);
  }
  pool.Trim();
  symalloc::Statistics s = pool.statistics();
  std::printf("%lld operations, %lld refused at the limit, %lld faults; live %lld, used %lld, reserved %lld\n",
              static_cast<long long>(s.allocs + s.frees), static_cast<long long>(refused.load()),
              static_cast<long long>(faults.load()), static_cast<long long>(s.live),
              static_cast<long long>(s.used), static_cast<long long>(s.reserved));
  bool exact = s.live == 0 && s.used == 0 && s.reserved == 0 && s.allocs == s.frees;
  return faults.load() == 0 && exact ? 0 : 1;
}

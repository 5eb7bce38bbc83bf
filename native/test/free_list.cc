// The free list beside a map of the same intervals: random programs whose frees ascend, descend, alternate between both ends
// or come in any order.  Exit status 1 where they differ, or where intervals that only come leave chunks emptier than half.
// Usage: symalloc_free_list [programs]
#include "pool/free_list.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using symalloc::FreeList;

namespace {

using Intervals = std::map<int64_t, int64_t>;  // start to end
using Block = std::pair<int64_t, int64_t>;     // offset, bytes

constexpr int64_t kGrain = 64;
constexpr int64_t kHalf = 16;  // intervals in half a chunk

void Require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

int64_t Up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Frees a block, and returns the interval that it is in then.
Block Put(Intervals* free, Block block) {
  auto [start, end] = std::pair(block.first, block.first + block.second);
  auto after = free->lower_bound(start);
  if (after != free->end() && after->first == end) {
    end = after->second;
    after = free->erase(after);
  }
  if (after != free->begin() && std::prev(after)->second == start) {
    start = std::prev(after)->first;
    free->erase(std::prev(after));
  }
  (*free)[start] = end;
  return {start, end};
}

void Take(Intervals* free, Block block) {
  auto at = std::prev(free->upper_bound(block.first));
  auto [start, end] = *at;
  free->erase(at);
  if (start < block.first) (*free)[start] = block.first;
  if (block.first + block.second < end) (*free)[block.first + block.second] = end;
}

// As FreeList::Find.
int64_t Find(const Intervals& free, int64_t nbytes, int64_t align) {
  Block best{FreeList::kNone, 0};
  for (auto [start, end] : free) {
    int64_t offset = Up(start, align);
    bool better = best.first == FreeList::kNone || end - start < best.second;
    if (end - offset < nbytes || !better) continue;
    best = {offset, end - start};
    if (nbytes > FreeList::kBestFit) break;
  }
  return best.first;
}

void Compare(const FreeList& list, const Intervals& free) {
  Intervals upwards;
  list.Upwards([&](int64_t start, int64_t end) { return upwards.emplace_hint(upwards.end(), start, end), true; });
  Require(upwards == free && list.count() == static_cast<int64_t>(free.size()), "the intervals differ");
  std::set<Block> by_size;
  for (auto [start, end] : free) by_size.emplace(end - start, start);
  std::vector<Block> ascending;
  list.FromSize(kGrain, [&](FreeList::Interval each) { return ascending.emplace_back(each.end - each.start, each.start), true; });
  Require(std::equal(by_size.begin(), by_size.end(), ascending.begin(), ascending.end()), "the order by size differs");
}

// Puts the blocks in the order in which they are freed.
void Arrange(std::vector<Block>* blocks, std::mt19937_64* random) {
  std::sort(blocks->begin(), blocks->end());
  size_t ascending = blocks->size() * ((*random)() % 5) / 4;  // so many of them do
  if ((*random)() % 2 != 0) ascending = std::min<size_t>(blocks->size(), 30 + (*random)() % 36);
  switch ((*random)() % 4) {
    case 0:
      std::shuffle(blocks->begin(), blocks->end(), *random);
      break;
    case 1:
      for (size_t i = 1; i < blocks->size(); i += 2) std::swap((*blocks)[i], (*blocks)[blocks->size() - 1 - i / 2]);
      break;
    default:
      std::reverse(blocks->begin() + ascending, blocks->end());
  }
}

void Run(uint64_t seed) {
  std::mt19937_64 random(seed);
  int64_t most = random() % 3 == 0 ? 8192 : 64;  // grains of a block
  int64_t count = 100 + random() % 3000;
  FreeList list(int64_t{1} << 40);
  Intervals free{{0, int64_t{1} << 40}};
  std::vector<Block> held;
  auto take = [&](int64_t nbytes, int64_t align) {
    int64_t offset = list.Find(nbytes, align);
    Require(offset == Find(free, nbytes, align), "another place is found");
    list.Take(offset, nbytes);
    Take(&free, {offset, nbytes});
    held.emplace_back(offset, nbytes);
  };
  for (int64_t i = 0; i < count; ++i) take(kGrain * (1 + random() % most), kGrain);
  for (int phase = 0; phase < 6; ++phase) {
    std::sort(held.begin(), held.end());
    std::vector<Block> freed, kept;
    for (size_t i = 0; i < held.size(); ++i) ((i + phase) % (2 + random() % 2) == 0 ? freed : kept).push_back(held[i]);
    Arrange(&freed, &random);
    held = std::move(kept);
    for (Block each : freed) {
      FreeList::Interval merged;
      Require(list.Put(each.first, each.second, &merged), "a block is taken for free");
      Require(Put(&free, each) == Block(merged.start, merged.end), "a block is merged in another way");
      Require(list.Overlaps(each.first, each.second), "a free block is not seen");
    }
    Compare(list, free);
    if (phase == 0) Require(list.chunks() <= list.count() / kHalf + 2, "chunks are emptier than half");
    for (size_t i = 0; i < std::min<size_t>(freed.size(), 300); ++i) {
      take(kGrain * (1 + random() % most), random() % 8 == 0 ? 4096 : kGrain);
    }
    Compare(list, free);
  }
}

}  // namespace

int main(int count, char** arguments) {
  uint64_t programs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 100;
  for (uint64_t seed = 0; seed < programs; ++seed) {
    try {
      Run(seed);
    } catch (const std::runtime_error& error) {
      std::printf("program %llu: %s\n", static_cast<unsigned long long>(seed), error.what());
      return 1;
    }
  }
  std::printf("0 of %llu programs differ\n", static_cast<unsigned long long>(programs));
}

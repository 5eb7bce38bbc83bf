#include "pool/guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "pool/options.h"
#include "pool/sizes.h"

namespace symalloc {

namespace {

constexpr int64_t kPage = 4096;
constexpr unsigned char kCanary = 0xa5;
constexpr unsigned char kFresh = 0xff;
constexpr size_t kFreedKept = 4096;  // blocks

// The first byte of [from, to) that is no canary; `to` where all are.
const char* FirstDamaged(const char* from, const char* to) {
  return std::find_if(from, to, [](char c) { return static_cast<unsigned char>(c) != kCanary; });
}

std::string Named(const std::string& tag, int64_t nbytes) {
  return (tag.empty() ? std::string("a block") : "`" + tag + "`") + " of " + std::to_string(nbytes) + " bytes";
}

}  // namespace

Guard::Guard() { WatchFaults(this); }

Guard::~Guard() {
  UnwatchFaults(this);
  for (auto& [_, block] : blocks_) munmap(block.mapped, block.total);
}

int64_t Guard::Backed(int64_t nbytes, int64_t align) {
  return std::max(RoundUp(RoundUp(nbytes, std::min(align, kPage)), kPage), kPage);
}

void* Guard::Alloc(int64_t nbytes, int64_t align) {
  int64_t backed = Backed(nbytes, align);
  int64_t total = kPage + backed + kPage + (align > kPage ? align : 0);
  void* mapped = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(mapped);
  char* body = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(start) + kPage, std::max(align, kPage)));
  char* end = body + backed;
  if (mprotect(body, backed, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, total);
    return nullptr;
  }
  char* begin = align > kPage ? body : end - RoundUp(nbytes, align);
  std::memset(body, kCanary, begin - body);
  std::memset(begin, kFresh, nbytes);
  std::memset(begin + nbytes, kCanary, end - begin - nbytes);
  std::lock_guard<std::mutex> lock(mutex_);
  blocks_[begin] = Block{start, body, end, total, nbytes, false, ""};
  return begin;
}

std::string Guard::Free(void* block, int64_t* backed) {
  std::lock_guard<std::mutex> lock(mutex_);
  char* begin = static_cast<char*>(block);
  auto found = Find(begin);
  if (found == blocks_.end()) throw BadFree("what is freed is no block of this pool");
  auto& [first, known] = *found;
  if (known.freed) throw BadFree(Named(known.tag, known.nbytes) + " is freed twice");
  if (first != begin) {
    throw BadFree("what is freed lies inside a block: at byte " + std::to_string(begin - first) + " of " +
                  Named(known.tag, known.nbytes));
  }
  std::string damage = DamageOf(first, known);
  *backed = known.end - known.body;
  madvise(known.body, known.end - known.body, MADV_DONTNEED);
  mprotect(known.body, known.end - known.body, PROT_NONE);
  known.freed = true;
  freed_.push_back(first);
  if (freed_.size() > kFreedKept) {
    auto oldest = blocks_.find(freed_.front());
    freed_.pop_front();
    munmap(oldest->second.mapped, oldest->second.total);
    blocks_.erase(oldest);
  }
  return damage;
}

void Guard::Name(void* block, const std::string& tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = blocks_.find(static_cast<char*>(block));
  if (found != blocks_.end()) found->second.tag = tag;
}

void Guard::Keep(const std::string& damage) {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_ += (kept_.empty() ? "" : "\n") + damage;
}

std::string Guard::Kept() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(kept_, "");
}

std::string Guard::Damage() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string all = std::exchange(kept_, "");
  for (const auto& [begin, block] : blocks_) {
    std::string damage = block.freed ? "" : DamageOf(begin, block);
    if (!damage.empty()) all += (all.empty() ? "" : "\n") + damage;
  }
  return all;
}

// The canaries behind the block tell first.
std::string Guard::DamageOf(const char* begin, const Block& block) {
  const char* behind = begin + block.nbytes;
  const char* damaged = FirstDamaged(behind, block.end);
  if (damaged != block.end) {
    return Named(block.tag, block.nbytes) + " was overrun: byte " + std::to_string(damaged - behind) +
           " past its end was written";
  }
  damaged = FirstDamaged(block.body, begin);
  if (damaged == begin) return "";
  // the last one in front is the nearest
  const char* nearest = begin - 1;
  while (static_cast<unsigned char>(*nearest) == kCanary) --nearest;
  return Named(block.tag, block.nbytes) + " was underrun: byte " + std::to_string(nearest - begin) +
         ", in front of it, was written";
}

// The block whose pages, protected ones included, hold `address`.
std::map<char*, Guard::Block>::iterator Guard::Find(char* address) {
  auto after = blocks_.upper_bound(address);
  if (after != blocks_.end() && after->second.mapped <= address) return after;
  if (after == blocks_.begin()) return blocks_.end();
  auto before = std::prev(after);
  return address < before->second.mapped + before->second.total ? before : blocks_.end();
}

bool Guard::Describe(const char* address, const char* verb, char* text, size_t size) {
  auto found = Find(const_cast<char*>(address));
  if (found == blocks_.end()) return false;
  const auto& [begin, block] = *found;
  const char* tag = block.tag.empty() ? "a block" : block.tag.c_str();
  const char* quote = block.tag.empty() ? "" : "`";
  auto nbytes = static_cast<long long>(block.nbytes);
  const char* behind = begin + block.nbytes;
  if (block.freed) {
    std::snprintf(text, size, "symalloc: %s%s%s of %lld bytes is %s after it was freed: byte %lld of it\n",
                  quote, tag, quote, nbytes, verb,
                  static_cast<long long>(address - begin));
  } else if (address < begin) {
    std::snprintf(text, size, "symalloc: %s%s%s of %lld bytes is underrun: byte %lld, in front of it, is %s\n",
                  quote, tag, quote, nbytes,
                  static_cast<long long>(address - begin), verb);
  } else {
    // where the canaries between are overwritten, it began there
    address = std::min(address, FirstDamaged(behind, block.end));
    std::snprintf(text, size, "symalloc: %s%s%s of %lld bytes is overrun: byte %lld past its end is %s\n",
                  quote, tag, quote, nbytes,
                  static_cast<long long>(address - behind), verb);
  }
  return true;
}

}  // namespace symalloc

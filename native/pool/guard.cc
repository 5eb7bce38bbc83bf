#include "pool/guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "pool/fault_handler.h"
#include "pool/fresh_memory.h"
#include "pool/options.h"
#include "pool/sizes.h"

namespace symalloc {

namespace {

const int64_t kPage = sysconf(_SC_PAGESIZE);
constexpr size_t kFreedKept = 4096;                   // blocks
constexpr int64_t kFreedBytesKept = int64_t{1} << 40;  // of address space

// The first byte of [from, to) that is no canary; `to` where all are.
const char* FirstDamaged(const char* from, const char* to) {
  return std::find_if(from, to, [](char c) { return static_cast<unsigned char>(c) != kCanary; });
}

// Unmaps a block that does not come about.
struct Mapped {
  ~Mapped() {
    if (start != nullptr) munmap(start, total);
  }
  char* start;
  int64_t total;
};

std::string Named(const std::string& tag, int64_t nbytes) {
  return (tag.empty() ? std::string("a block") : "`" + tag + "`") + " of " + std::to_string(nbytes) + " bytes";
}

}  // namespace

Guard::Guard() { WatchFaults(); }

Guard::~Guard() {
  for (GuardRecords* each : records_) each->Disown();
  for (auto& [_, block] : blocks_) munmap(block.mapped, block.total);
}

int64_t Guard::Backed(int64_t nbytes, int64_t align) {
  return std::max(RoundUp(RoundUp(nbytes, std::min(align, kPage)), kPage), kPage);
}

void* Guard::Alloc(int64_t nbytes, int64_t align) {
  WatchFaults();
  int64_t backed = Backed(nbytes, align);
  int64_t total = kPage + backed + kPage + (align > kPage ? align : 0);
  char* start = Map(total);
  if (start == nullptr) return nullptr;
  char* body = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(start) + kPage, std::max(align, kPage)));
  char* end = body + backed;
  char* begin = align > kPage ? body : end - RoundUp(nbytes, align);
  Mapped mapped{start, total};
  if (mprotect(body, backed, PROT_READ | PROT_WRITE) != 0) return nullptr;
  if (!FillFresh(begin, nbytes, nbytes < kFilled ? -1 : File())) return nullptr;
  std::memset(body, kCanary, begin - body);
  std::memset(begin + nbytes, kCanary, end - begin - nbytes);
  if (!Note(begin, Block{start, body, end, total, nbytes, nullptr, false, ""})) return nullptr;
  mapped.start = nullptr;
  return begin;
}

int Guard::File() {
  std::lock_guard<std::mutex> lock(mutex_);
  return file_.Get();
}

// Protected pages; for want of addresses or mappings, those of freed blocks are given up.
char* Guard::Map(int64_t total) {
  constexpr int kHow = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* mapped = mmap(nullptr, total, PROT_NONE, kHow, -1, 0);
  if (mapped == MAP_FAILED) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (!freed_.empty()) ForgetOldest();
    mapped = mmap(nullptr, total, PROT_NONE, kHow, -1, 0);
  }
  return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
}

// False where there is no memory to note it in.
bool Guard::Note(char* begin, Block block) try {
  std::lock_guard<std::mutex> lock(mutex_);
  if (unused_.empty() && !AddRecords()) return false;
  block.record = unused_.back();
  GuardedBlock shown{block.mapped, block.mapped + block.total, begin, block.end, block.nbytes, false};
  blocks_[begin] = std::move(block);
  unused_.back()->Set(shown, {});
  unused_.pop_back();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool Guard::AddRecords() {
  size_t count = GuardRecords::kCount * (records_.size() + 1);
  records_.reserve(records_.size() + 1);
  unused_.reserve(count);  // so that taking records back cannot fail
  GuardRecords* more = GuardRecords::Claim();
  if (more == nullptr) return false;
  records_.push_back(more);
  for (GuardRecord& record : more->records) unused_.push_back(&record);
  return true;
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
  try {
    freed_.push_back(first);
  } catch (const std::bad_alloc&) {
    Forget(found);
    return damage;
  }
  known.freed = true;
  known.record->SetFreed();  // before a fault can say so
  freed_bytes_ += known.total;
  Protect(known);
  while (freed_.size() > kFreedKept || freed_bytes_ > kFreedBytesKept) ForgetOldest();
  return damage;
}

// One mapping takes the place of all that the block had.
void Guard::Protect(const Block& block) {
  constexpr int kHow = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (mmap(block.mapped, block.total, PROT_NONE, kHow, -1, 0) != MAP_FAILED) return;
  madvise(block.body, block.end - block.body, MADV_DONTNEED);
  mprotect(block.body, block.end - block.body, PROT_NONE);
}

void Guard::ForgetOldest() {
  auto oldest = blocks_.find(freed_.front());
  freed_.pop_front();
  freed_bytes_ -= oldest->second.total;
  Forget(oldest);
}

void Guard::Forget(Blocks::iterator forgotten) {
  Block& block = forgotten->second;
  block.record->Clear();
  unused_.push_back(block.record);
  munmap(block.mapped, block.total);
  blocks_.erase(forgotten);
}

void Guard::Name(void* block, const std::string& tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = blocks_.find(static_cast<char*>(block));
  if (found == blocks_.end()) return;
  found->second.tag = tag;
  found->second.record->SetTag(tag);
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

}  // namespace symalloc

#include "pool/guarded_blocks.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace symalloc {

namespace {

constexpr int kTries = 1 << 16;  // of reading what is being changed

std::atomic<GuardRecords*> first{nullptr};

// As much of `tag` as fits, not ending within a character of UTF-8.
std::string_view Shortened(std::string_view tag) {
  if (tag.size() < kShownTag) return tag;
  size_t size = kShownTag - 1;
  while (size > 0 && (static_cast<unsigned char>(tag[size]) & 0xc0) == 0x80) --size;
  return tag.substr(0, size);
}

}  // namespace

// Fields are stored and loaded in order by themselves: sanitizers do not know fences.
template <typename Change>
void GuardRecord::Write(Change change) {
  uint32_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  change();
  version_.store(version + 2, std::memory_order_release);
}

void GuardRecord::StoreTag(std::string_view tag) {
  char text[kShownTag] = {};
  std::string_view shown = Shortened(tag);
  std::copy(shown.begin(), shown.end(), text);
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word;
    std::memcpy(&word, text + i * sizeof word, sizeof word);
    tag_[i].store(word, std::memory_order_release);
  }
}

void GuardRecord::Set(const GuardedBlock& block, std::string_view tag) {
  Write([&] {
    mapped_.store(block.mapped, std::memory_order_release);
    end_.store(block.end, std::memory_order_release);
    begin_.store(block.begin, std::memory_order_release);
    edge_.store(block.edge, std::memory_order_release);
    nbytes_.store(block.nbytes, std::memory_order_release);
    freed_.store(block.freed, std::memory_order_release);
    StoreTag(tag);
  });
}

void GuardRecord::SetTag(std::string_view tag) {
  Write([&] { StoreTag(tag); });
}

void GuardRecord::SetFreed() {
  Write([&] { freed_.store(true, std::memory_order_release); });
}

void GuardRecord::Clear() { Set(GuardedBlock{}, {}); }

bool GuardRecord::Read(const char* address, GuardedBlock* block, char (&tag)[kShownTag]) const {
  for (int i = 0; i < kTries; ++i) {
    uint32_t before = version_.load(std::memory_order_acquire);
    block->mapped = mapped_.load(std::memory_order_acquire);
    block->end = end_.load(std::memory_order_acquire);
    block->begin = begin_.load(std::memory_order_acquire);
    block->edge = edge_.load(std::memory_order_acquire);
    block->nbytes = nbytes_.load(std::memory_order_acquire);
    block->freed = freed_.load(std::memory_order_acquire);
    for (size_t j = 0; j < kWords; ++j) {
      uint64_t word = tag_[j].load(std::memory_order_acquire);
      std::memcpy(tag + j * sizeof word, &word, sizeof word);
    }
    if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) break;
  }
  tag[kShownTag - 1] = '\0';
  return block->mapped <= address && address < block->end;
}

GuardRecords* GuardRecords::Claim() {
  for (GuardRecords* each = first.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    bool none = false;
    if (each->owned.compare_exchange_strong(none, true, std::memory_order_acquire)) return each;
  }
  auto* fresh = new (std::nothrow) GuardRecords();
  if (fresh == nullptr) return nullptr;
  fresh->next = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(fresh->next, fresh, std::memory_order_release)) {
  }
  return fresh;
}

void GuardRecords::Disown() {
  for (GuardRecord& record : records) record.Clear();
  owned.store(false, std::memory_order_release);
}

bool FindGuardedBlock(const char* address, GuardedBlock* block, char (&tag)[kShownTag]) {
  for (GuardRecords* each = first.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    for (const GuardRecord& record : each->records) {
      if (record.Read(address, block, tag)) return true;
    }
  }
  return false;
}

}  // namespace symalloc

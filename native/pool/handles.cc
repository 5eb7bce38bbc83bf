#include "pool/handles.h"

#include <atomic>
#include <utility>

#include "pool/options.h"

namespace symalloc {

namespace {

constexpr uint32_t kGenerations = 0x7fffffff;  // handles stay positive

// Far from those of other tables: as many blocks would have to go through one index in between.
uint32_t FirstGeneration() {
  static std::atomic<uint32_t> tables{0};
  return ((tables.fetch_add(1) * 0x9e3779b1) & kGenerations) | 1;
}

}  // namespace

HandleTable::HandleTable() : first_(FirstGeneration()) {}

int64_t HandleTable::Add(void* block, int64_t nbytes, std::string tag) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (unused_.empty()) {
    if (unused_.capacity() == slots_.size()) unused_.reserve(2 * slots_.size() + 8);  // `Release` needs no memory
    slots_.push_back({first_, {}});
    unused_.push_back(static_cast<uint32_t>(slots_.size() - 1));
  }
  uint32_t index = unused_.back();
  unused_.pop_back();
  Slot& slot = slots_[index];
  slot.held.block = block;
  slot.held.nbytes = nbytes;
  slot.held.references = 1;
  if (!tag.empty()) slot.held.tag = std::move(tag);  // it is empty while nobody holds the slot
  return static_cast<int64_t>(slot.generation) << 32 | index;
}

Held HandleTable::Get(int64_t handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  return Find(handle)->held;
}

void HandleTable::Retain(int64_t handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++Find(handle)->held.references;
}

bool HandleTable::Release(int64_t handle, Held* gone) {
  std::lock_guard<std::mutex> lock(mutex_);
  Slot* slot = Find(handle);
  if (--slot->held.references > 0) return false;
  gone->block = slot->held.block;
  gone->nbytes = slot->held.nbytes;
  if (!slot->held.tag.empty()) gone->tag = std::exchange(slot->held.tag, {});
  slot->generation = (slot->generation + 1) & kGenerations;
  unused_.push_back(static_cast<uint32_t>(handle));
  return true;
}

std::vector<Held> HandleTable::All() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Held> all;
  for (const Slot& slot : slots_) {
    if (slot.held.references > 0) all.push_back(slot.held);
  }
  return all;
}

HandleTable::Slot* HandleTable::Find(int64_t handle) {
  uint64_t index = static_cast<uint32_t>(handle);
  if (handle < 0 || index >= slots_.size()) throw BadFree("no such handle: it belongs to another pool");
  Slot* slot = &slots_[index];
  if (slot->generation != static_cast<uint32_t>(handle >> 32) || slot->held.references == 0) {
    throw BadFree("the handle is stale: its block has been freed, or is of another pool");
  }
  return slot;
}

}  // namespace symalloc

// Handles: names of blocks that are checked at every use, and counted.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace symalloc {

// A block as its holders know it.
struct Held {
  void* block = nullptr;
  int64_t nbytes = 0;
  int64_t references = 0;
  std::string tag;
};

// A handle is generation << 32 | index.  The generation of an index changes when its block goes, so that an
// old handle is known to be stale, and begins elsewhere in each table, so that those of others are.  Thread-safe.
class HandleTable {
 public:
  HandleTable();

  int64_t Add(void* block, int64_t nbytes, std::string tag);

  // The block of `handle`; throws BadFree for a stale handle, or one of another pool.
  Held Get(int64_t handle);
  void Retain(int64_t handle);

  // Drops one reference; true when it was the last: then `*gone` is what the handle named.
  bool Release(int64_t handle, Held* gone);

  std::mutex* mutex() { return &mutex_; }

  // All blocks that are held, in the order of the indices.
  std::vector<Held> All();

 private:
  struct Slot {
    uint32_t generation;
    Held held;
  };

  Slot* Find(int64_t handle);

  const uint32_t first_;  // generation of an index
  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> unused_;
};

}  // namespace symalloc

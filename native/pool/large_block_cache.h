// The memory that a thread keeps for its next large blocks: symalloc/pool/core/thread_cache.py is the reference.
#pragma once

#include <atomic>
#include <cstdint>

namespace symalloc {

// One piece of free memory.  It spares large blocks the lock and the free list.
class LargeBlockCache {
 public:
  // The front of the piece, where it is large enough; nullptr: it is not.
  void* Take(int64_t nbytes) {
    int64_t size = this->size();
    if (size < nbytes) return nullptr;
    char* block = start_;
    start_ += nbytes;
    SetSize(size - nbytes);
    return block;
  }

  // Makes a block a part of the piece; false where they do not touch, or would be more than `most` bytes.
  bool Join(void* block, int64_t nbytes, int64_t most) {
    int64_t size = this->size();
    char* start = static_cast<char*>(block);
    if (size + nbytes > most || (size > 0 && start_ + size != start && start + nbytes != start_)) return false;
    if (size == 0 || start < start_) start_ = start;
    SetSize(size + nbytes);
    return true;
  }

  // Calls release(start, nbytes), where there is anything, and forgets it.
  template <typename Release>
  void Flush(Release release) {
    int64_t size = this->size();
    if (size == 0) return;
    SetSize(0);
    release(start_, size);
  }

  // Bytes; any thread may ask.
  int64_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  void SetSize(int64_t size) { size_.store(size, std::memory_order_relaxed); }

  char* start_ = nullptr;
  std::atomic<int64_t> size_{0};  // written by one thread at a time
};

}  // namespace symalloc

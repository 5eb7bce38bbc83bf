// What a pool has handed out and got back, in order: the events of a trace.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace symalloc {

class Recorder {
 public:
  // {1, block, bytes} for an allocation, {0, block, 0} for a free; blocks are numbered from 1.
  using Event = std::array<int64_t, 3>;

  bool on() const { return on_.load(std::memory_order_relaxed); }

  // Forgets what was recorded, and records from now on, or no more.  Blocks that are live now stay unknown.
  void Start() {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.clear();
    blocks_.clear();
    on_ = true;
  }
  void Stop() { on_ = false; }

  // Called once the block is there.
  void Allocated(const void* block, int64_t nbytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_[block] = ++count_;
    events_.push_back({1, count_, nbytes});
  }

  // Called before the block can be handed out again.
  void Freed(const void* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.find(block);
    if (found == blocks_.end()) return;
    events_.push_back({0, found->second, 0});
    blocks_.erase(found);
  }

  std::mutex* mutex() { return &mutex_; }

  std::vector<Event> Events() {
    std::lock_guard<std::mutex> lock(mutex_);
    return events_;
  }

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  int64_t count_ = 0;
  std::vector<Event> events_;
  std::unordered_map<const void*, int64_t> blocks_;
};

}  // namespace symalloc

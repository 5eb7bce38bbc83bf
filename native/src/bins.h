// Small free blocks of one thread, by exact size: symalloc/pool/bins.py is the reference.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace symalloc {

constexpr int64_t kGrain = 64;              // sizes and offsets are multiples of it
constexpr int64_t kBinLargest = 64 << 10;   // bytes

// A free block holds the pointer to the next one of its size.
class Bins {
 public:
  void* Take(int64_t nbytes) {
    Node*& head = heads_[nbytes / kGrain];
    Node* node = head;
    if (node != nullptr) {
      head = node->next;
      Hold(-nbytes);
    }
    return node;
  }

  void Put(void* block, int64_t nbytes) {
    Node*& head = heads_[nbytes / kGrain];
    head = new (block) Node{head};
    Hold(nbytes);
  }

  // Any thread may ask.
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

  // Calls release(block, nbytes) for every block and forgets it.
  template <typename Release>
  void Flush(Release release) {
    for (int64_t i = 1; held() > 0 && i < static_cast<int64_t>(heads_.size()); ++i) {
      while (heads_[i] != nullptr) {
        void* block = Take(i * kGrain);
        release(block, i * kGrain);
      }
    }
  }

 private:
  struct Node {
    Node* next;
  };

  void Hold(int64_t nbytes) { held_.store(held() + nbytes, std::memory_order_relaxed); }

  std::atomic<int64_t> held_{0};  // bytes; written by one thread
  std::array<Node*, kBinLargest / kGrain + 1> heads_{};
};

}  // namespace symalloc

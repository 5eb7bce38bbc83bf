// Large free blocks of a thread that serve blocks of nearly their size: symalloc/pool/core/thread_cache.py is the
// reference.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "pool/sizes.h"

namespace symalloc {

// A free block, whole.
struct Piece {
  void* block;
  int64_t nbytes;
};

// Up to kMost blocks of up to kLargest bytes.  The last takes the place of one that goes.
class NearFitCache {
 public:
  static constexpr int64_t kLargest = 256 << 10;  // bytes
  static constexpr int kMost = 128;

  // Removes the smallest block of `least` to `most` bytes, of those of one size the last; nullptr: there is none.
  Piece Take(int64_t least, int64_t most) {
    if (count_ == 0 || least > kLargest) return {nullptr, 0};
    auto from = static_cast<uint16_t>(least / kGrain);
    uint16_t excess = UINT16_MAX;  // what is too small wraps
    for (uint16_t size : sizes_) excess = std::min(excess, static_cast<uint16_t>(size - from));
    if (least + excess * kGrain > most) return {nullptr, 0};
    auto found = static_cast<uint16_t>(from + excess);
    int16_t at = 0;
    for (int16_t i = 0; i < kMost; ++i) at = sizes_[i] == found ? i : at;
    return Remove(at);
  }

  // False where a block is not here; true where it is, or its address is like that of one that is.
  bool MayHold(const void* block) const {
    uint32_t mark = Mark(block);
    uint32_t may = 0;
    for (uint32_t each : marks_) may |= each == mark ? 1u : 0u;
    return may != 0;
  }

  bool Holds(const void* block) const {
    return std::find(blocks_.begin(), blocks_.begin() + count_, block) != blocks_.begin() + count_;
  }

  // False where that would be too many blocks, or too many bytes.
  bool Put(void* block, int64_t nbytes) {
    if (!HasRoom(nbytes)) return false;
    sizes_[count_] = static_cast<uint16_t>(nbytes / kGrain);
    marks_[count_] = Mark(block);
    blocks_[count_++] = block;
    SetHeld(held() + nbytes);
    return true;
  }

  // Lets it hold up to `most` bytes, and calls release(block, nbytes) for one after the other until there is room for `nbytes`.
  template <typename Release>
  void MakeRoom(int64_t nbytes, int64_t most, Release release) {
    most_ = most;
    while (count_ > 0 && !HasRoom(nbytes)) {
      next_ = next_ < count_ - 1 ? next_ + 1 : 0;
      Piece next = Remove(next_);
      release(next.block, next.nbytes);
    }
  }

  // Calls release(block, nbytes) for every block and forgets it.
  template <typename Release>
  void Flush(Release release) {
    while (count_ > 0) {
      Piece last = Remove(count_ - 1);
      release(last.block, last.nbytes);
    }
  }

  // Bytes; any thread may ask.
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  static_assert(kLargest / kGrain < UINT16_MAX / 2);

  // Never 0.
  static uint32_t Mark(const void* block) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(block) / kGrain) | 1u << 31;
  }
  bool HasRoom(int64_t nbytes) const { return count_ < kMost && held() + nbytes <= most_; }
  void SetHeld(int64_t held) { held_.store(held, std::memory_order_relaxed); }

  Piece Remove(int at) {
    Piece piece{blocks_[at], sizes_[at] * kGrain};
    --count_;
    sizes_[at] = sizes_[count_];
    marks_[at] = marks_[count_];
    blocks_[at] = blocks_[count_];
    sizes_[count_] = 0;
    marks_[count_] = 0;
    SetHeld(held() - piece.nbytes);
    return piece;
  }

  int64_t most_ = 0;  // bytes
  int count_ = 0;
  int next_ = 0;  // to be released: where the one before was
  std::atomic<int64_t> held_{0};        // bytes; written by one thread at a time
  std::array<uint16_t, kMost> sizes_{};  // in units of kGrain; 0 beyond the last
  std::array<uint32_t, kMost> marks_{};   // of their addresses; 0 beyond the last
  std::array<void*, kMost> blocks_;
};

}  // namespace symalloc

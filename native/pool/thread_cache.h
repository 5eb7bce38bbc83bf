// The cache of one thread for one pool: tests/pool/reference/thread_cache.py is the reference.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "pool/barrier.h"
#include "pool/near_fit_cache.h"
#include "pool/sizes.h"

namespace symalloc {

// Adds to what one thread at a time changes, and any may read.
template <typename Number>
void AddAlone(std::atomic<Number>* sum, Number amount) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  // of a load and a store the compiler makes three instructions
  if constexpr (sizeof(Number) == 8) {
    asm("addq %1, %0" : "+m"(*sum) : "er"(amount) : "cc");
  } else {
    asm("addl %1, %0" : "+m"(*sum) : "er"(amount) : "cc");
  }
#else
  sum->store(sum->load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
#endif
}

// A sum that one thread at a time changes, and any may read.
// Additions and removals are counted separately: one number would have to be stored and read again twice for each
// block that comes and goes, which takes longer than all the rest.
class SplitCounter {
 public:
  void Add(int64_t amount) { AddAlone(&in_, static_cast<uint64_t>(amount)); }
  void Remove(int64_t amount) { AddAlone(&out_, static_cast<uint64_t>(amount)); }

  void Reset() { in_ = out_ = 0; }

  // Too much rather than too little where another thread changes it meanwhile.
  int64_t left() const {
    uint64_t out = out_.load(std::memory_order_acquire);
    return static_cast<int64_t>(in_.load(std::memory_order_relaxed) - out);
  }

 private:
  std::atomic<uint64_t> in_{0}, out_{0};  // they may wrap
};

// Small free blocks by exact size.
// One block, of any size, waits where the counts are, so that one that comes and goes costs no other cache line.  The block
// freed last of each size is known by itself, so that it is not touched.  The others hold the pointer to the next one; of
// those as large as a page a list is kept aside, so that no page is touched that its user has not touched.
class SizeBins {
 public:
  static constexpr int64_t kMost = int64_t{1} << 36;  // bytes that may be held

  // `most`: bytes that may be held, at most kMost.
  explicit SizeBins(int64_t most) : room_(static_cast<int32_t>(most / kGrain)), most_(room_) {}
  ~SizeBins() { std::free(entries_); }
  SizeBins(const SizeBins&) = delete;
  SizeBins& operator=(const SizeBins&) = delete;

  // The number of a size, from 0 on; larger than all where `nbytes` is below 1.
  static uint64_t Index(int64_t nbytes) { return static_cast<uint64_t>(nbytes - 1) / kGrain; }

  void* Take(int64_t nbytes) {
    uint64_t index = Index(nbytes);
    if (IsFront(index)) return TakeFront();
    Bin& bin = bins_[index];
    void* block = bin.last;
    if (block != nullptr) {
      bin.last = nullptr;
    } else if (bin.others == 0) {
      return nullptr;
    } else if (index < kAside) {
      Node* node = reinterpret_cast<Node*>(bin.others);
      bin.others = node->next;
      block = node;
    } else {
      uintptr_t at = bin.others;
      block = entries_[at].block;
      bin.others = entries_[at].next;
      entries_[at].next = spare_;
      spare_ = at;
    }
    AddRoom(index);
    return block;
  }

  // The block of a size that was freed last, if it is known by itself; else nullptr: `Take` may have another.
  void* TakeLast(uint64_t index) {
    if (__builtin_expect(IsFront(index), 1)) return TakeFront();
    Bin& bin = bins_[index];
    void* block = bin.last;
    if (block == nullptr) return nullptr;
    bin.last = nullptr;
    AddRoom(index);
    return block;
  }

  // False where `Put` is needed, or there is no room.
  bool PutLast(void* block, uint64_t index) {
    int32_t front = front_.load(std::memory_order_relaxed);
    if (static_cast<int32_t>(index) + front + 2 > room_.load(std::memory_order_relaxed)) return false;
    if (__builtin_expect(front == kNone, 1)) {
      PutFront(block, index);
      return true;
    }
    Bin& bin = bins_[index];
    if (bin.last != nullptr || front == static_cast<int32_t>(index)) return false;
    bin.last = block;
    TakeRoom(index);
    return true;
  }

  // True where a block of `nbytes` may be held besides those that are.
  bool HasRoom(int64_t nbytes) const { return held() + nbytes <= most_ * kGrain; }

  // There is room; false where it must `Grow` before.
  bool Put(void* block, int64_t nbytes) {
    uint64_t index = Index(nbytes);
    if (front_ == kNone) {
      PutFront(block, index);
      return true;
    }
    if (!IsFront(index)) return PutBehind(block, index);
    if (!PutBehind(front_block_, index)) return false;
    front_block_ = block;
    return true;
  }

  // Makes room for more blocks of whole pages, once there is none; false where there is no memory.
  bool Grow() {
    uintptr_t count = count_ == 0 ? 32 : 2 * count_;
    void* grown = std::realloc(static_cast<void*>(entries_), count * sizeof(Entry));
    if (grown == nullptr) return false;
    entries_ = static_cast<Entry*>(grown);
    for (uintptr_t at = std::max<uintptr_t>(count_, 1); at < count; ++at) {
      entries_[at] = Entry{nullptr, spare_};
      spare_ = at;
    }
    count_ = count;
    return true;
  }

  // Any thread may ask.
  int64_t held() const {
    int64_t front = front_.load(std::memory_order_relaxed) + 1;
    return (most_ - room_.load(std::memory_order_relaxed) + front) * kGrain;
  }

  // Calls release(block, nbytes) for every block and forgets it.
  template <typename Release>
  void Flush(Release release) {
    if (int64_t front = front_; front != kNone) release(TakeFront(), (front + 1) * kGrain);
    if (held() == 0) return;
    for (int64_t nbytes = kGrain; nbytes <= kBinLargest; nbytes += kGrain) {
      const Bin& bin = bins_[Index(nbytes)];
      if (bin.last == nullptr && bin.others == 0) continue;
      while (void* block = Take(nbytes)) release(block, nbytes);
      if (held() == 0) return;
    }
  }

 private:
  static constexpr uint64_t kAside = 4096 / kGrain - 1;  // the number of the least size that is kept aside

  struct Node {
    uintptr_t next;
  };

  struct Entry {
    void* block;
    uintptr_t next;  // the number of an entry; 0: none
  };

  struct Bin {
    void* last = nullptr;
    uintptr_t others = 0;  // a node, or the number of an entry; 0: none
  };

  static constexpr int32_t kNone = -1;

  bool IsFront(uint64_t index) const {
    return static_cast<int64_t>(index) == front_.load(std::memory_order_relaxed);
  }
  void* TakeFront() {
    front_.store(kNone, std::memory_order_relaxed);
    if (front_block_ == nullptr) __builtin_unreachable();  // so that callers do not compare
    return front_block_;
  }
  void PutFront(void* block, uint64_t index) {
    front_block_ = block;
    front_.store(static_cast<int32_t>(index), std::memory_order_relaxed);
  }

  // As `Put`.
  bool PutBehind(void* block, uint64_t index) {
    Bin& bin = bins_[index];
    if (bin.last == nullptr) {
      bin.last = block;
    } else if (index < kAside) {
      bin.others = reinterpret_cast<uintptr_t>(new (bin.last) Node{bin.others});
      bin.last = block;
    } else {
      if (spare_ == 0) return false;
      uintptr_t at = spare_;
      spare_ = entries_[at].next;
      entries_[at] = Entry{bin.last, bin.others};
      bin.others = at;
      bin.last = block;
    }
    TakeRoom(index);
    return true;
  }

  void AddRoom(uint64_t index) { AddAlone(&room_, static_cast<int32_t>(index + 1)); }
  void TakeRoom(uint64_t index) { AddAlone(&room_, -static_cast<int32_t>(index + 1)); }

  void* front_block_ = nullptr;        // freed later than all others of its size
  std::atomic<int32_t> front_{kNone};  // the number of its size; written by one thread at a time
  std::atomic<int32_t> room_;          // grains that all but the front leave; as `front_`
  const int64_t most_;                 // grains
  Entry* entries_ = nullptr;
  uintptr_t spare_ = 0;  // the first entry that is not in use
  uintptr_t count_ = 0;  // of entries; that with the number 0 is not used
  std::array<Bin, kBinLargest / kGrain> bins_{};
};

// One piece of free memory.  Large blocks from it take neither the lock nor the free list.
class LargeBlockCache {
 public:
  // The front of the piece, where it is large enough, and, for a cache that is choosy, hardly larger than the block;
  // nullptr: it is not.
  void* Take(int64_t nbytes) {
    int64_t size = this->size();
    if (size < nbytes || (choosy_ && size - nbytes > size / kChoosy)) return nullptr;
    char* block = start_;
    start_ = size == nbytes ? nullptr : start_ + nbytes;
    SetSize(size - nbytes);
    return block;
  }

  // Makes a block a part of the piece; false where they do not touch, or would be more than may be held.
  bool Join(void* block, int64_t nbytes) {
    int64_t size = this->size();
    char* start = static_cast<char*>(block);
    if (size + nbytes > most_ || (size > 0 && start_ + size != start && start + nbytes != start_)) return false;
    if (size == 0 || start < start_) start_ = start;
    SetSize(size + nbytes);
    return true;
  }

  // Calls release(start, nbytes), where there is anything, and forgets it; nothing is held until `Allow`.
  template <typename Release>
  void Flush(Release release) {
    int64_t size = this->size();
    most_ = 0;
    if (size == 0) return;
    SetSize(0);
    release(std::exchange(start_, nullptr), size);
  }

  // Lets it hold up to `most` bytes.
  void Allow(int64_t most, bool choosy) {
    most_ = most;
    choosy_ = choosy;
  }

  // True where a block ends where the piece begins; of no block where there is none.
  bool Touches(const void* block, int64_t nbytes) const {
    return static_cast<const char*>(block) + nbytes == start_;
  }

  // Bytes; any thread may ask.
  int64_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kChoosy = 16;

  void SetSize(int64_t size) { size_.store(size, std::memory_order_relaxed); }

  char* start_ = nullptr;  // of the piece; nullptr: there is none
  int64_t most_ = 0;  // bytes
  bool choosy_ = false;
  std::atomic<int64_t> size_{0};  // written by one thread at a time
};

// Bins and large blocks belong to their thread while it is inside `section`, else to whoever holds the pool's
// mutex: others than that thread close the door first.  The counts are written by their thread alone, and read by any.
// What every small block changes lies in one cache line, up to what the first bins have at hand.
struct alignas(64) ThreadCache {
  ThreadCache(int64_t bin_largest, int64_t bin_capacity)
      : bins(bin_capacity), bin_largest(bin_largest), bin_capacity(bin_capacity) {}

  std::atomic<int64_t> allocs{0}, frees{0};
  SplitCounter live;  // bytes asked for; below 0 where it frees what others allocate
  Section section;
  SizeBins bins;
  const int64_t bin_largest, bin_capacity;  // bytes
  LargeBlockCache large_block;
  NearFitCache near_fits;
  SplitCounter slack;  // bytes of blocks; below 0 as `live`
  int64_t seen = -1;  // allocs and frees when a period began; of the holder of the mutex

  // For another thread that is to have it.
  void ResetCounts() {
    allocs = frees = 0;
    live.Reset();
    slack.Reset();
    seen = -1;
  }

  // Bytes that wait here.
  int64_t held() const { return bins.held() + large_block.size() + near_fits.held(); }

  // Removes a block of `nbytes` bytes, or, with `near`, one that is larger by at most an eighth; nullptr: there is none.
  Piece Take(int64_t nbytes, bool near) {
    if (nbytes <= bin_largest) {
      void* block = bins.Take(nbytes);
      if (block != nullptr) return {block, nbytes};
    }
    if (NearFitCache::Takes(nbytes)) {
      Piece piece = near_fits.Take(nbytes, near ? (nbytes + nbytes / kNear) & -kGrain : nbytes);
      if (piece.block != nullptr) return piece;
    }
    if (nbytes <= bin_largest && !ServesMedium(nbytes)) return {nullptr, nbytes};
    return {large_block.Take(nbytes), nbytes};
  }

  // Calls release(block, nbytes) for everything and forgets it.
  template <typename Release>
  void Flush(Release release) {
    bins.Flush(release);
    large_block.Flush(release);
    near_fits.Flush(release);
  }

  // True where a block goes to a bin: it is small, or does not touch the large piece, which it may have come from.
  bool GoesToBin(const void* block, int64_t nbytes) const {
    return nbytes <= bin_largest && (nbytes < kMedium || !large_block.Touches(block, nbytes));
  }

  // The same, for what is at most `bin_largest`, with one look for most.
  bool SurelyGoesToBin(const void* block, int64_t nbytes) const {
    return __builtin_expect(nbytes <= kMedium - kGrain, 1) || !large_block.Touches(block, Rounded(nbytes));
  }

  void CountAlloc(int64_t nbytes) {
    AddAlone<int64_t>(&allocs, 1);
    live.Add(nbytes);
  }
  void CountFree(int64_t nbytes) {
    AddAlone<int64_t>(&frees, 1);
    live.Remove(nbytes);
  }

 private:
  static constexpr int64_t kNear = 8;
  static constexpr int64_t kMedium = NearFitCache::kLeast;  // bytes

  // True where a block may come from the large piece, which would go if the range had to serve it.
  bool ServesMedium(int64_t nbytes) const {
    return nbytes >= kMedium && large_block.size() > 2 * bin_capacity;
  }
};

}  // namespace symalloc

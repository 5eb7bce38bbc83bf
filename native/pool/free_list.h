// The free intervals of one address range, in address order: tests/pool/reference/free_list.py is the reference.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "pool/size_index.h"

namespace symalloc {

// Intervals are kept in chunks of up to kSlots.  Each chunk, and each group of chunks, knows its largest one of those
// beyond kBestFit, so that a search for these looks at one number for most of them.
class FreeList {
 public:
  static constexpr int64_t kNone = -1;
  static constexpr int64_t kBestFit = SizeBuckets::kLargest;  // bytes

  struct Interval {
    int64_t start, end;
  };

  explicit FreeList(int64_t capacity);

  // The place of `nbytes` bytes, a multiple of `align`, or kNone: in the smallest interval that is large enough up to
  // kBestFit bytes, the lowest of those of one size; the lowest place of all for more.
  int64_t Find(int64_t nbytes, int64_t align) const;

  // Removes [offset, offset + nbytes), which must lie in one interval.
  void Take(int64_t offset, int64_t nbytes);

  // True where part of [offset, offset + nbytes) is free.
  bool Overlaps(int64_t offset, int64_t nbytes) const;

  // Frees [offset, offset + nbytes) and merges it with what it touches, to `merged`; false where part of it is free.
  bool Put(int64_t offset, int64_t nbytes, Interval* merged);

  // Bytes of the largest interval.
  int64_t Largest() const { return by_size_.Largest(); }

  // The number of intervals.
  int64_t count() const { return count_; }

  // The number of chunks that they lie in, which are half full at least, on average, where intervals only come.
  int64_t chunks() const { return static_cast<int64_t>(chunks_.size()); }

  // The interval that `offset` lies in, [offset, offset) where it is not free.
  Interval Around(int64_t offset) const;

  // Calls visit(interval) for those of `nbytes` bytes, at least 1, and more, the smallest first, until it returns false.
  template <typename Visit>
  void FromSize(int64_t nbytes, Visit visit) const {
    by_size_.From(nbytes, [&](const SizeIndex::Key& key) { return visit(Interval{key.start, key.start + key.size}); });
  }

  // Calls visit(start, end) for the free parts of [from, to), the highest first.
  template <typename Visit>
  void Within(int64_t from, int64_t to, Visit visit) const {
    for (Place at = Before(to - 1); at.slot >= 0 && start(at) + size(at) > from; Previous(&at)) {
      visit(std::max(start(at), from), std::min(start(at) + size(at), to));
    }
  }

  // Calls visit(start, end) for each interval, the lowest first, until it returns false.
  template <typename Visit>
  void Upwards(Visit visit) const {
    for (const Chunk& chunk : chunks_) {
      for (int i = 0; i < chunk.slots->count; ++i) {
        int64_t start = chunk.slots->starts[i];
        if (!visit(start, start + chunk.slots->sizes[i])) return;
      }
    }
  }

  // The same, the highest first.
  template <typename Visit>
  void Downwards(Visit visit) const {
    for (auto chunk = chunks_.rbegin(); chunk != chunks_.rend(); ++chunk) {
      const Slots& slots = *chunk->slots;
      for (int i = slots.count - 1; i >= 0; --i) {
        if (!visit(slots.starts[i], slots.starts[i] + slots.sizes[i])) return;
      }
    }
  }

 private:
  static constexpr int kSlots = 32;
  static constexpr int64_t kGroup = 32;

  struct Slots {
    int count = 0;
    std::array<int64_t, kSlots> starts;
    std::array<int64_t, kSlots> sizes;

    // Moves the intervals from `from` on to `to`.
    void Shift(int from, int to) {
      for (auto* numbers : {&starts, &sizes}) {
        std::memmove(numbers->data() + to, numbers->data() + from, (count - from) * sizeof(int64_t));
      }
      count += to - from;
    }
  };

  struct Chunk {
    int64_t largest;  // bytes of its largest interval beyond kBestFit; 0: none
    std::unique_ptr<Slots> slots;
  };

  struct Place {
    int64_t chunk;
    int slot;
  };

  // The last interval that starts at or below `offset`; slot -1 of chunk 0 where there is none.
  Place Before(int64_t offset) const;
  bool Next(Place* place) const;
  void Previous(Place* place) const;  // to slot -1 of chunk 0 where there is none
  // Makes room for intervals of these sizes, 0: for none, and with `undo` for what takes them back: what follows cannot
  // fail any more.
  void Prepare(int64_t size, int64_t other, bool undo) {
    if (__builtin_expect(ready_ < 1 + undo, 0)) MakeRoom();
    by_size_.Prepare(size, other, undo);
  }
  void MakeRoom();
  Place MakePlace(Place place);
  void Split(int64_t chunk, int kept);
  void MoveLast(int64_t chunk);
  void InsertAfter(Place place, int64_t start, int64_t size);
  void Erase(Place place);
  void Change(Place place, int64_t start, int64_t size);
  void Refresh(int64_t chunk);
  void SetFirst(int64_t chunk) { firsts_[chunk] = chunks_[chunk].slots->count ? chunks_[chunk].slots->starts[0] : 0; }
  void Regroup(int64_t chunk);
  int64_t FindLowest(int64_t nbytes, int64_t align) const;

  int64_t start(Place p) const { return chunks_[p.chunk].slots->starts[p.slot]; }
  int64_t size(Place p) const { return chunks_[p.chunk].slots->sizes[p.slot]; }

  std::vector<Chunk> chunks_;    // none is empty, unless nothing is free
  std::vector<int64_t> firsts_;  // where the first interval of each chunk starts
  std::vector<int64_t> groups_;  // the largest of kGroup chunks each
  std::vector<std::unique_ptr<Slots>> spare_;
  int ready_ = 0;  // chunks that there is room for at least
  SizeIndex by_size_;
  int64_t count_ = 0;
  mutable int64_t latest_ = 0;  // the chunk that was looked for last: the next is often the same
};

}  // namespace symalloc

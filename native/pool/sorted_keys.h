// Pairs of numbers in ascending order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace symalloc {

// Pairs of a size and a start, ascending, in chunks of up to kSlots.
class SortedKeys {
 public:
  static constexpr int kSlots = 64;

  struct Key {
    int64_t size, start;  // bytes
    bool operator<(const Key& other) const {
      return size != other.size ? size < other.size : start < other.start;
    }
  };

  // Makes room for keys that need so many chunks more: to insert them cannot fail any more.
  void Prepare(size_t chunks) {
    if (__builtin_expect(ready_ < chunks, 0)) MakeRoom(chunks + 2);
  }

  // There must be a chunk to spare.
  void Insert(Key key) {
    if (chunks_.empty()) chunks_.push_back(Chunk{key, Spare()});
    size_t at = ChunkOf(key);
    if (chunks_[at].slots->count == kSlots) at = MakePlace(at, key);
    Slots& slots = *chunks_[at].slots;
    Key* place = std::lower_bound(slots.begin(), slots.end(), key);
    std::memmove(place + 1, place, (slots.end() - place) * sizeof(Key));
    *place = key;
    ++slots.count;
    chunks_[at].first = slots.keys[0];
  }

  // Removes a key that is there.
  void Erase(Key key) {
    size_t at = ChunkOf(key);
    Slots& slots = *chunks_[at].slots;
    Key* place = std::lower_bound(slots.begin(), slots.end(), key);
    std::memmove(place, place + 1, (slots.end() - place - 1) * sizeof(Key));
    if (--slots.count == 0) {
      chunks_.erase(chunks_.begin() + at);
    } else {
      chunks_[at].first = slots.keys[0];
    }
  }

  // Bytes of the largest interval; 0 where there is none.
  int64_t Largest() const {
    if (chunks_.empty()) return 0;
    const Slots& slots = *chunks_.back().slots;
    return slots.keys[slots.count - 1].size;
  }

  // Calls visit(key) for the keys of `size` bytes and more, ascending, until it returns false.
  template <typename Visit>
  void From(int64_t size, Visit visit) const {
    if (chunks_.empty()) return;
    Key least{size, -1};
    size_t at = ChunkOf(least);
    const Slots* slots = chunks_[at].slots.get();
    const Key* key = std::lower_bound(slots->begin(), slots->end(), least);
    for (;;) {
      for (; key != slots->end(); ++key) {
        if (!visit(*key)) return;
      }
      if (++at == chunks_.size()) return;
      slots = chunks_[at].slots.get();
      key = slots->begin();
    }
  }

 private:
  struct Slots {
    int count = 0;
    std::array<Key, kSlots> keys;

    Key* begin() { return keys.data(); }
    Key* end() { return keys.data() + count; }
    const Key* begin() const { return keys.data(); }
    const Key* end() const { return keys.data() + count; }
  };

  struct Chunk {
    Key first;
    std::unique_ptr<Slots> slots;
  };

  // The last chunk whose first key is not above `key`, or the first.
  size_t ChunkOf(Key key) const {
    if (latest_ < chunks_.size() && !(key < chunks_[latest_].first) &&
        (latest_ + 1 == chunks_.size() || key < chunks_[latest_ + 1].first)) {
      return latest_;
    }
    return latest_ = FindChunk(key);
  }
  size_t FindChunk(Key key) const {
    auto above = std::upper_bound(chunks_.begin(), chunks_.end(), key,
                                  [](Key value, const Chunk& chunk) { return value < chunk.first; });
    return above == chunks_.begin() ? 0 : above - chunks_.begin() - 1;
  }

  void MakeRoom(size_t chunks) {
    while (spare_.size() < chunks) spare_.push_back(std::make_unique<Slots>());
    if (chunks_.capacity() < chunks_.size() + chunks) chunks_.reserve(2 * (chunks_.size() + chunks));
    ready_ = chunks;
  }

  std::unique_ptr<Slots> Spare() {
    --ready_;
    std::unique_ptr<Slots> spare = std::move(spare_.back());
    spare_.pop_back();
    return spare;
  }

  // The chunk to insert `key` into, in place of `at`, which is full.  At its end the next chunk may have room: keys that
  // ascend or descend, all or all but one, fill the chunks.
  size_t MakePlace(size_t at, Key key) {
    const Key* keys = chunks_[at].slots->keys.data();
    const int kept = keys[kSlots - 1] < key ? kSlots : keys[kSlots - 2] < key ? kSlots - 1 : kSlots / 2;
    if (kept == kSlots / 2 || at + 1 == chunks_.size() || chunks_[at + 1].slots->count == kSlots) {
      Split(at, kept, key);
    } else if (kept < kSlots) {
      MoveLast(at);
    }
    return kept < kSlots && key < chunks_[at + 1].first ? at : at + 1;
  }

  // Makes two chunks of one; `key`, which is to be inserted, is to be the first of the upper one where that has no other.
  void Split(size_t at, int kept, Key key) {
    std::unique_ptr<Slots> upper = Spare();
    Slots& lower = *chunks_[at].slots;
    std::copy(lower.keys.begin() + kept, lower.keys.end(), upper->keys.begin());
    upper->count = kSlots - kept;
    lower.count = kept;
    Key first = upper->count == 0 ? key : upper->keys[0];
    chunks_.insert(chunks_.begin() + at + 1, Chunk{first, std::move(upper)});
  }

  // Moves the last key of a full chunk to the next one.
  void MoveLast(size_t at) {
    Slots& lower = *chunks_[at].slots;
    Slots& upper = *chunks_[at + 1].slots;
    std::memmove(upper.keys.data() + 1, upper.keys.data(), upper.count * sizeof(Key));
    ++upper.count;
    upper.keys[0] = chunks_[at + 1].first = lower.keys[--lower.count];
  }

  std::vector<Chunk> chunks_;  // none is empty
  std::vector<std::unique_ptr<Slots>> spare_;
  size_t ready_ = 0;           // chunks that there is room for at least
  mutable size_t latest_ = 0;  // the chunk that was looked for last: the next is often the same
};

}  // namespace symalloc

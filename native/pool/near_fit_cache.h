// Free blocks of a thread that serve blocks of nearly their size: tests/pool/reference/thread_cache.py is the reference.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "pool/size_marks.h"
#include "pool/sizes.h"
#include "pool/slack_table.h"

namespace symalloc {

// A free block, whole.
struct Piece {
  void* block;
  int64_t nbytes;
};

// Up to kMost blocks.  The last take the place of those that have waited longest.  The slack table of their range says
// which they are.
class NearFitCache {
 public:
  static constexpr int64_t kLeast = SlackTable::kLeast, kLargest = SizeMarks::kLargest;  // bytes
  static constexpr int kMost = 255;
  static constexpr int kShare = 8;  // of it this part is made room for at once

  NearFitCache() = default;
  ~NearFitCache() { std::free(table_); }
  NearFitCache(const NearFitCache&) = delete;
  NearFitCache& operator=(const NearFitCache&) = delete;

  // True where a block of `nbytes` may be here.
  static bool Takes(int64_t nbytes) { return nbytes >= kLeast && nbytes <= kLargest; }

  // Removes the smallest block of `least` to `most` bytes, of those of one size the last; nullptr: there is none.
  Piece Take(int64_t least, int64_t most) {
    if (table_ == nullptr) return {nullptr, 0};
    int64_t size = table_->sizes.Next(least);
    if (size == 0 || size > most) return {nullptr, 0};
    return Remove(table_->last[SizeMarks::Index(size)]);
  }

  // False where that would be too many blocks, or too many bytes.
  bool HasRoom(int64_t nbytes) const { return count_ < kMost && held() + nbytes <= most_; }

  // There is room, and the block is not here.
  void Put(void* block, int64_t nbytes) {
    Table& table = *table_;
    uint8_t at = spare_;
    if (at == 0) at = ++used_;
    Entry& entry = table.entries[at];
    if (at == spare_) spare_ = entry.newer;
    uint8_t& last = table.last[SizeMarks::Index(nbytes)];
    entry = Entry{block, static_cast<uint16_t>(SizeMarks::Index(nbytes) + 1), table.entries[0].older, 0, last, 0};
    table.entries[entry.older].newer = at;
    table.entries[0].older = at;
    if (last == 0) table.sizes.Mark(nbytes);
    table.entries[last].above = at;
    last = at;
    ++count_;
    SetHeld(held() + nbytes);
    slack_->Keep(static_cast<char*>(block) - base_, nbytes);
  }

  // Lets it hold up to `most` bytes, of a range at `base`.  Where there is no room for `nbytes` more, calls
  // release(block, nbytes) for one block after the other until there is, and for a share of all beside: those that come
  // next find room without the mutex.  It has room for nothing where there is no memory.
  template <typename Release>
  void MakeRoom(int64_t nbytes, int64_t most, SlackTable* slack, const char* base, Release release) {
    if (table_ == nullptr) table_ = static_cast<Table*>(std::calloc(1, sizeof(Table)));
    most_ = table_ == nullptr ? 0 : most;
    slack_ = slack;
    base_ = base;
    if (HasRoom(nbytes)) return;
    while (count_ > 0 && (count_ >= kMost - kMost / kShare || held() + nbytes > most_ - most_ / kShare)) {
      Piece oldest = Remove(table_->entries[0].newer);
      release(oldest.block, oldest.nbytes);
    }
  }

  // Calls release(block, nbytes) for every block, the last first, and forgets it.
  template <typename Release>
  void Flush(Release release) {
    while (count_ > 0) {
      Piece last = Remove(table_->entries[0].older);
      release(last.block, last.nbytes);
    }
  }

  // Bytes; any thread may ask.
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  // The numbers are those of entries; 0: none.
  struct Entry {
    void* block;
    uint16_t units;        // of kGrain bytes
    uint8_t older, newer;  // of all; those that are not in use follow each other by `newer`
    uint8_t below, above;  // of its size, in the same way
  };

  // All zero, it is empty.
  struct Table {
    SizeMarks sizes;
    std::array<uint8_t, SizeMarks::kCount> last;  // of each size
    std::array<Entry, kMost + 1> entries;         // the first is that before the oldest and behind the newest
  };

  void SetHeld(int64_t held) { held_.store(held, std::memory_order_relaxed); }

  Piece Remove(uint8_t at) {
    Table& table = *table_;
    Entry& entry = table.entries[at];
    Piece piece{entry.block, entry.units * kGrain};
    table.entries[entry.older].newer = entry.newer;
    table.entries[entry.newer].older = entry.older;
    table.entries[entry.below].above = entry.above;
    if (entry.above != 0) {
      table.entries[entry.above].below = entry.below;
    } else {
      table.last[SizeMarks::Index(piece.nbytes)] = entry.below;
      if (entry.below == 0) table.sizes.Unmark(piece.nbytes);
    }
    entry.newer = spare_;
    spare_ = at;
    --count_;
    SetHeld(held() - piece.nbytes);
    slack_->Forget(static_cast<char*>(piece.block) - base_);
    return piece;
  }

  int64_t most_ = 0;  // bytes
  Table* table_ = nullptr;
  SlackTable* slack_ = nullptr;  // of the range
  const char* base_ = nullptr;   // of the range
  int count_ = 0;
  uint8_t used_ = 0, spare_ = 0;   // entries that ever were in use; the first that is not any more
  std::atomic<int64_t> held_{0};  // bytes; written by one thread at a time
};

}  // namespace symalloc

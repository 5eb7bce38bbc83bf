// The tags of single blocks, the events of a trace, and statistics of scopes by tag, as long as they are asked for.
// Otherwise the test of `on` is its whole cost.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/quick_flags.h"

namespace symalloc {

// Blocks and bytes under one tag.  `left` and `peak` are of blocks that were allocated since the scope was opened.
struct TagCount {
  int64_t allocs = 0, allocated = 0;
  int64_t frees = 0, freed = 0;
  int64_t left = 0, peak = 0;  // bytes

  void Add(int64_t nbytes);
  void Remove(int64_t nbytes, bool allocated_since);
};

struct ScopeStatistics {
  int64_t begin = 0;    // the number of the next block when it began
  int64_t live = 0;     // of the pool, in bytes asked for
  int64_t peak_live = 0;
  std::map<std::string, TagCount> tags;  // "": blocks without one
};

struct Recording {
  // {1, block, bytes, call, ns}: allocated; {0, block, 0, 0, ns}: freed; {2 or 3, call, 0, 0, ns}: a call begins, ends.
  // Blocks and calls are numbered from 1; ns since the recording began.
  using Event = std::array<int64_t, 5>;
  std::deque<Event> events;
  std::deque<std::pair<int64_t, std::string>> tags;  // by block
  int64_t dropped = 0;  // events from before the first
};

struct Tagged {
  const void* block;
  int64_t nbytes;
  std::string tag;
};

// Thread-safe.
class AllocationTracker {
 public:
  // `flags` outlives this.
  explicit AllocationTracker(QuickFlags* flags) : flags_(*flags) {}

  // True where blocks are not to come and go unseen.
  bool on() const { return flags_.Has(QuickFlags::kTracking | QuickFlags::kCharging); }

  // True where they are charged to somebody.
  bool charging() const { return flags_.Has(QuickFlags::kCharging); }
  void SetCharging(bool charging) { flags_.Set(QuickFlags::kCharging, charging); }

  // True where this notes something.
  bool tracking() const { return flags_.Has(QuickFlags::kTracking); }

  // What there is no memory to note is missing in scopes, and counts as dropped in recordings.

  // Called once the block is there.
  void Allocated(const void* block, int64_t nbytes, std::string_view tag);

  // Gives a live block a tag, in place of any that it has; "" takes it away.
  void Tag(const void* block, int64_t nbytes, std::string_view tag);

  // Called before the block can be handed out again.
  void Freed(const void* block, int64_t nbytes);

  // Forgets what was recorded, and records from now on, or no more.  The last `most` events are kept.  Blocks that are
  // live now stay unknown.
  void StartRecording(int64_t most);
  void StopRecording();
  Recording Recorded();

  // A call of the calling thread: what it allocates until `EndCall` belongs to it.  0 where nothing is recorded.
  int64_t BeginCall();
  void EndCall(int64_t call);

  // `live`: bytes that the pool has handed out now.
  int64_t OpenScope(int64_t live);
  ScopeStatistics ReadScope(int64_t id);
  void CloseScope(int64_t id);

  // The live blocks that have a tag.
  std::vector<Tagged> AllTagged();

  std::mutex* mutex() { return &mutex_; }

 private:
  struct Block {
    int64_t number;     // ascending, of all blocks ever noted
    int64_t recorded;   // its number in the recording, 0: it is not there
    int64_t nbytes;
    std::string tag;
  };

  bool noting() const { return recording_ || !scopes_.empty(); }
  void Settle();
  void Record(int64_t kind, int64_t block, int64_t nbytes, int64_t call);
  void SetTag(Block* block, std::string_view tag);
  void Note(const void* block, int64_t nbytes, std::string_view tag);
  void Forget(const void* block);

  QuickFlags& flags_;
  std::mutex mutex_;
  bool recording_ = false;
  size_t most_ = 0;  // events, and tags
  int64_t numbers_ = 0, recorded_ = 0, calls_ = 0, next_scope_ = 1;
  int64_t tagged_ = 0;  // blocks that have a tag
  std::unordered_map<const void*, Block> blocks_;
  std::chrono::steady_clock::time_point begun_;
  Recording recording_of_;
  std::unordered_map<std::thread::id, std::vector<int64_t>> open_calls_;
  std::map<int64_t, ScopeStatistics> scopes_;
};

}  // namespace symalloc

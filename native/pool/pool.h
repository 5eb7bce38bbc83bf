// The pool: what its threads cache in front of its range, its limits, and those who watch it.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pool/allocation_tracker.h"
#include "pool/decay.h"
#include "pool/decay_thread.h"
#include "pool/guard.h"
#include "pool/options.h"
#include "pool/paged_range.h"
#include "pool/peaks.h"
#include "pool/sessions.h"
#include "pool/thread_caches.h"
#include "pool/wait_queue.h"
#include "pool/watermarks.h"

namespace symalloc {

// A thread, never twice in a process; 0: it has used no pool yet, or is ending.
using ThreadId = uint64_t;
constexpr ThreadId kNoThread = ~ThreadId{0};
extern __attribute__((tls_model("initial-exec"))) __thread ThreadId this_thread;  // not thread_local: that costs a call

// The cache of a thread for a pool.
struct KnownCache {
  uint64_t pool_id;  // 0: none
  ThreadCache* cache;
};

// The caches of a thread by the lowest bits of the pools' ids, which ascend by the size of a slot, and, where these are
// taken, in the slots behind.
struct KnownCaches {
  KnownCache& At(uint64_t id) const {
    return *reinterpret_cast<KnownCache*>(reinterpret_cast<char*>(slots) + (id & mask));
  }
  KnownCache* slots;
  uint64_t mask;  // bytes of all slots but the last; their number is a power of two
};
extern __attribute__((tls_model("initial-exec"))) __thread KnownCaches known_caches;

// Thread-safe.  Blocks may be freed by another thread than allocated them.
class Pool {
 public:
  // `held_too`: a mutex to be held while the process forks, never taken together with one of the pool.
  explicit Pool(const Options& options, std::mutex* held_too = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // `nbytes` bytes at a multiple of `align`, a power of two; throws OutOfMemory, and in guard mode Overrun
  // for damage that was kept.  `tag` reaches recordings and scopes; `Tag` makes it stay.
  void* Alloc(int64_t nbytes, int64_t align, std::string_view tag = {});

  // The same, but waits for memory as long as it is told to, others in front of it, before it throws OutOfMemory, and
  // PoolUsage where the pool is closed meanwhile.  Where a callback for want of memory helps, nobody waits.
  void* AllocWaiting(int64_t nbytes, int64_t align, std::string_view tag, Patience patience);

  // Ends all waits `until_closed`, as though the pool were closed.
  void EndWaits();

  // `nbytes` must be what was asked for; throws BadFree for what is seen to be no block of this pool,
  // and in guard mode Overrun where the block was overrun: it is freed all the same.
  void Free(void* block, int64_t nbytes);

  // Asked, without the mutex, after each few mebibytes that were given back: false, or a throw, ends it.
  using GoOn = std::function<bool()>;

  // Empties the bins of all threads and gives every free page back; the bytes given back.  Other threads hardly wait.
  int64_t Trim(const GoOn& go_on = nullptr);

  // At the end of a period, which `now` (seconds) may be: gives back the free pages that nobody needed during it, and
  // empties the caches of threads that did nothing; the bytes given back.  Calls no callbacks.
  int64_t DecayAt(double now, const GoOn& go_on = nullptr);

  // Serves no more, and gives all free pages back, the others when the last block is freed.
  void Close();

  Statistics statistics();

  // Counts the peaks of the statistics from what is in use now; no decision depends on them.
  void ResetPeak();

  // Says what a live block is for, in place of what was said before; "": nothing.
  void Tag(void* block, int64_t nbytes, std::string_view tag);

  // Counts what is allocated and freed until it is closed, by tag; any number at a time.
  int64_t OpenScope();
  std::pair<ScopeStatistics, Peak> ReadScope(int64_t id);
  void CloseScope(int64_t id);

  // A session within the one that the calling thread is in.  Threads enter it and leave it; what they allocate meanwhile
  // is charged to it until it is freed, by whomever.  `limit`: bytes; -1: none.  `paged`: in whole pages of the system.
  std::shared_ptr<Session> OpenSession(std::string name, int64_t limit, bool paged = false);
  void EnterSession(std::shared_ptr<Session> session);
  void LeaveSession(const Session* session);  // throws PoolUsage where the thread is not in it
  void CountLeft();                           // a thread that is in a session ends
  void SetSessionLimit(Session* session, int64_t limit);
  SessionStatistics ReadSession(const Session* session);
  std::map<std::string, Holding> HeldBy(const Session* session);

  void SetLimit(int64_t limit);  // bytes; -1: none
  int64_t limit();

  // Has the callback called when the mark is passed, without the pool's mutex, by the thread that passes it or a
  // later one; its number, for `RemoveWatermark`.  What callbacks throw beside std::runtime_error leaves the call
  // of the pool, which has allocated nothing then.
  int64_t AddWatermark(Watermark watermark);
  void RemoveWatermark(int64_t id);

  // Called when an allocation of `nbytes` does not fit, for the `tries`-th time (from 0); true: it is tried again, at
  // most `retries` times.  An empty function: there is no callback.
  using OnOom = std::function<bool(int64_t nbytes, int64_t tries, const std::string& why)>;
  void SetOnOom(OnOom on_oom, int64_t retries);

  // Forgets all callbacks.
  void ClearCallbacks();

  // The number of free intervals and of runs of backed pages, then start and end of each.
  std::vector<int64_t> Layout();

  // True where `block` lies in the address space of this pool.
  bool owns(const void* block) const {
    return (reinterpret_cast<uint64_t>(block) - quick_.base) / kGrain < quick_.grains;
  }

  // The offset of a block in the address space: an address of the reference.
  int64_t Address(const void* block) const { return range_.Offset(block); }

  // Bytes of address space.
  int64_t capacity() const { return range_.capacity(); }

  int64_t page() const { return page_; }

  // nullptr where the pool is not in guard mode.
  Guard* guard() { return guard_.get(); }

  AllocationTracker& tracker() { return tracker_; }

 private:
  using Lock = std::unique_lock<std::mutex>;  // of the pool's mutex
  class Queued;

  struct Request {
    int64_t nbytes, align;
    std::string_view tag;
    Patience patience;
    ChargeRef charge;  // nullptr: to no session
  };

  // A block that is to be released, which lies in itself.
  struct Deferred {
    Deferred* next;
    int64_t size;
  };

  friend struct ThreadDirectory;
  friend class PoolRegistry;

  void LockAll();
  void UnlockAll();
  void Inherit();
  void* AllocGuarded(int64_t nbytes, int64_t align);
  void FreeGuarded(void* block, int64_t nbytes);
  std::string DropGuarded(void* block, int64_t nbytes);
  void* TakeQuickly(ThreadCache* cache, int64_t nbytes);
  bool PutQuickly(ThreadCache* cache, void* block, int64_t nbytes);
  void* TakeCached(ThreadCache* cache, int64_t nbytes);
  bool PutCached(ThreadCache* cache, void* block, int64_t nbytes);
  // True where a thread may cache such a block.
  bool Cacheable(int64_t nbytes, int64_t align) const {
    return quick_.caches && static_cast<uint64_t>(nbytes) <= quick_.grains * kGrain && align <= kGrain;
  }
  // Out of line and called last, so that the quick way saves no registers.
  [[gnu::noinline]] void* AllocCached(int64_t nbytes, int64_t align, std::string_view tag);
  [[gnu::noinline]] void FreeCached(void* block, int64_t nbytes);
  [[gnu::noinline]] void* AllocSlowly(int64_t nbytes, int64_t align, std::string_view tag);
  [[gnu::noinline]] void FreeSlowly(void* block, int64_t nbytes);
  void* AllocUncached(Request asked);
  void FreeUncached(ThreadCache* cache, void* block, int64_t nbytes);
  ThreadCache* cache() {
    ThreadCache* found = QuickCache();
    return __builtin_expect(found != nullptr, 1) ? found : FindCache();
  }
  bool IsHome() const { return quick_.home.load(std::memory_order_relaxed) == this_thread; }
  // nullptr where it takes longer.
  ThreadCache* QuickCache() {
    if (__builtin_expect(IsHome(), 1)) return &home_cache_;
    const KnownCache& slot = known_caches.At(quick_.id);
    return slot.pool_id == quick_.id ? slot.cache : nullptr;
  }
  // True where `block` is an address that blocks may have.
  bool MayBeBlock(const void* block) const {
    uint64_t offset = reinterpret_cast<uint64_t>(block) - quick_.base;
    return (offset / kGrain | offset << (64 - kGrainBits)) < quick_.grains;  // more where it is no multiple
  }
  // What is known of a block that was to have `size` bytes; nothing moves before `ForgetSlack`.
  SlackTable::Known KnownOf(const void* block, int64_t size) {
    if (size < SlackTable::kLeast || !range_.had_near_fits()) return {0, false};
    return range_.slack().Of(range_.Offset(block));
  }
  void NoteSlack(ThreadCache* cache, const Piece& piece, int64_t slack);
  void ForgetSlack(ThreadCache* cache, const void* block, int64_t slack);
  ThreadCache* FindCache();
  ThreadCache* AddCache();
  void Retire(ThreadCache* cache);
  void* Place(ThreadCache* cache, int64_t nbytes, int64_t align);
  char* TakeLocked(Lock* lock, ThreadCache* cache, int64_t size, int64_t align, PageRecycler* recycler);
  char* TakeTightest(Lock* lock, ThreadCache* cache, int64_t size, int64_t align, PageRecycler* recycler);
  void CountTaken(ThreadCache* cache, int64_t nbytes, int64_t size);
  int64_t GiveBackFree(Lock* lock, bool yields, int64_t most, const GoOn& go_on = nullptr);
  void NoteFree() {
    if (!decay_.on()) return;
    decay_.Note(range_.free_pages());
    DecayThread::Global().Ensure();
  }
  void GiveBackUnits(Lock* lock);
  void Settle(Lock* lock, PageRecycler* recycler);
  void AwaitDeparture(Lock* lock);
  void AwaitDepartures(Lock* lock);
  void* Obtain(const Request& asked);
  void* AwaitRoom(const Request& asked);
  void* TryAlloc(const Request& asked);
  void* TryUncharged(const Request& asked);
  void TakeBack(void* block, int64_t nbytes);
  std::string Discharge(const Request& asked);
  bool IsHeldUp(const Request& asked);
  void WakeLocked();
  ChargeRef Uncharge(const void* block);
  void Refund(const ChargeRef& charge, int64_t nbytes);
  bool IsAsking() const;
  bool AskForMemory(const Request& asked, int64_t tries, const OutOfMemory& error);
  void CountRefused(const Request& asked);
  void RequireOpenLocked() const;
  void CallWatermarks();
  void CallWatermark(Watermark* watermark, int64_t in_use);
  void CallWatermarksWith(void* block, int64_t nbytes);
  void NoteUsed(int64_t change) {
    used_ += change;
    watermarks_.Note(used_);
  }
  int64_t InUse(const ThreadCache* cache) const {
    return used_ - caches_.slack() - (cache == nullptr ? 0 : cache->held());
  }
  // What takes the place of pages in limbo is nobody's before they have gone, and counts once.
  int64_t ReservedLocked() const {
    if (guard_ != nullptr) return used_;
    int64_t backed = range_.reserved(), all = backed + range_.limbo.bytes();
    return range_.limit < 0 ? all : std::min(all, std::max(range_.limit, backed));
  }
  Peak NowLocked() const { return {used_, ReservedLocked()}; }
  void ReleaseLocked(void* block, int64_t size);
  void ReleaseDeferredLocked();
  void FlushLocked(ThreadCache* cache);
  bool FlushOthersLocked(const ThreadCache* mine);
  void KeepLocked(ThreadCache* cache, void* block, int64_t size);
  void KeepNearLocked(ThreadCache* cache, void* block, int64_t size);
  void FreeSlackLocked();

  // What every small block looks at, in one cache line.
  struct alignas(64) Quick {
    uint64_t id;                            // never used twice in a process
    std::atomic<ThreadId> home{kNoThread};  // the first thread that used the pool, while there is one
    uint64_t base, grains;                  // of the range
    uint64_t alloc_most;                    // bytes of a block that may come the quickest way
    std::atomic<uint32_t> free_most{0};     // bytes of a block that may go the quickest way: see PagedRange
    QuickFlags flags;
    bool caches;  // false in guard mode, and where nothing is to be cached
  };

  static_assert(sizeof(Quick) == 64);

  Quick quick_;
  ThreadCache home_cache_;              // of the home thread; behind `quick_`, so that they share a page
  const int64_t large_block_capacity_;  // bytes; one thread at a time may hold more
  const int64_t page_;
  const int64_t wait_;                  // ns
  void (*const check_interrupts_)();

  std::unique_ptr<Guard> guard_;
  AllocationTracker tracker_;
  std::vector<std::mutex*> held_at_fork_;

  std::mutex mutex_;  // guards all below
  PagedRange range_;
  Decay decay_;
  ThreadCaches caches_;
  Watermarks watermarks_;
  WaitQueue queue_;  // for memory that others are to free
  Sessions sessions_;
  Peaks peaks_;
  const ThreadCache* most_holder_ = nullptr;  // which may hold more large blocks than others
  std::shared_ptr<const OnOom> on_oom_;
  int64_t oom_retries_ = 0;
  int64_t used_ = 0, refused_ = 0;
  Deferred* deferred_ = nullptr;  // in use, although freed: there was no memory for the free list
  bool closed_ = false;
  int waiting_ = 0;                   // allocations that wait for pages in limbo: no trim puts more there meanwhile
  uint64_t departures_ = 0;           // from limbo
  std::condition_variable departed_;  // something has left limbo, or waits for it no more
};

[[gnu::always_inline]] inline void* Pool::TakeCached(ThreadCache* cache, int64_t nbytes) {
  if (cache == nullptr || !cache->section.Enter(quick_.flags)) return nullptr;
  int64_t size = Rounded(nbytes);
  Piece piece = cache->Take(size, range_.near_fits());
  if (piece.block != nullptr) {
    if (__builtin_expect(piece.nbytes > size, 0)) NoteSlack(cache, piece, piece.nbytes - size);
    cache->CountAlloc(nbytes);
  }
  cache->section.Leave();
  return piece.block;
}

}  // namespace symalloc

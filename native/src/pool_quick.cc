// The way of most blocks through the pool: to and from what their thread keeps, without the mutex.
#include "pool.h"

namespace symalloc {

[[gnu::always_inline]] inline void* Pool::TakeBinned(Local* local, int64_t nbytes, int which) {
  int64_t size = Rounded(nbytes);
  if (size > bin_largest_ || local == nullptr || !local->section.Enter(closed_)) return nullptr;
  void* block = local->bins[which].Take(size);
  if (block != nullptr) local->CountAlloc(nbytes);
  local->section.Leave();
  return block;
}

[[gnu::always_inline]] inline bool Pool::PutBinned(Local* local, void* block, int64_t nbytes, int which) {
  int64_t size = Rounded(nbytes);
  if (size > bin_largest_ || local == nullptr || !local->section.Enter(closed_)) return false;
  Bins& bins = local->bins[which];
  bool fits = bins.held() + size <= options_.bin_capacity;
  if (fits) {
    bins.Put(block, size);
    local->CountFree(nbytes);
  }
  local->section.Leave();
  return fits;
}

void* Pool::Alloc(int64_t nbytes, int64_t align, bool escapes, std::string_view tag) {
  if (__builtin_expect(Binned(nbytes, align) && recent.pool_id == id_ && !ledger_.on(), 1)) {
    void* block = TakeBinned(recent.local, nbytes, escapes && options_.apart);
    if (__builtin_expect(block != nullptr, 1)) return block;
  }
  return AllocSlowly(nbytes, align, escapes, tag);
}

void* Pool::AllocSlowly(int64_t nbytes, int64_t align, bool escapes, std::string_view tag) {
  void* block = Binned(nbytes, align) ? TakeBinned(local(), nbytes, escapes && options_.apart) : nullptr;
  if (block == nullptr) block = AllocUnbinned(nbytes, align, escapes);
  if (ledger_.on()) ledger_.Allocated(block, nbytes, escapes, tag);
  return block;
}

void Pool::Free(void* block, int64_t nbytes) {
  if (__builtin_expect(Binned(nbytes, kGrain) && recent.pool_id == id_ && !ledger_.on(), 1)) {
    int which = RangeOf(block);
    bool sound = which >= 0 && reinterpret_cast<int64_t>(block) % kGrain == 0;
    if (__builtin_expect(sound && PutBinned(recent.local, block, nbytes, which), 1)) {
      if (__builtin_expect(watches_.due(), 0)) CallWatches();
      return;
    }
  }
  FreeSlowly(block, nbytes);
}

void Pool::FreeSlowly(void* block, int64_t nbytes) {
  if (guard_ != nullptr) return FreeGuarded(block, nbytes);
  int which = RangeOf(block);
  if (which < 0 || reinterpret_cast<int64_t>(block) % kGrain != 0 || nbytes < 0 || nbytes > options_.capacity) {
    throw BadFree("what is freed is no block of this pool");
  }
  if (ledger_.on()) ledger_.Freed(block, nbytes);
  Local* mine = local();
  if (!PutBinned(mine, block, nbytes, which)) FreeUnbinned(mine, block, nbytes, which);
  if (watches_.due()) CallWatches();
}

void* Pool::TakePiece(Local* local, int64_t nbytes, int which) {
  int64_t size = Rounded(nbytes);
  if (size <= bin_largest_ || local == nullptr || !local->section.Enter(closed_)) return nullptr;
  void* block = local->pieces[which].Take(size);
  if (block != nullptr) local->CountAlloc(nbytes);
  local->section.Leave();
  return block;
}

bool Pool::JoinPiece(Local* local, void* block, int64_t nbytes, int which) {
  int64_t size = Rounded(nbytes);
  if (local == nullptr || size <= bin_largest_ || !local->section.Enter(closed_)) return false;
  bool joined = local->pieces[which].Join(block, size, piece_most_);
  if (joined) local->CountFree(nbytes);
  local->section.Leave();
  return joined;
}

}  // namespace symalloc

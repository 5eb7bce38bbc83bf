// The pool among threads: what each of them has of it, and what is done when they end or the process forks.
#include <algorithm>
#include <utility>

#include "pool.h"
#include "registry.h"

namespace symalloc {

// The pools that this thread has bins in.  When the thread ends, it hands its blocks back.
struct ThreadDirectory {
  ~ThreadDirectory();
  std::vector<std::pair<uint64_t, Local*>> entries;
};

namespace {

thread_local bool ended = false;
thread_local ThreadDirectory directory;

}  // namespace

// What belongs to a pool that is gone is never looked at, for ids are not used twice.
__attribute__((tls_model("initial-exec"))) __thread Recent recent;

ThreadDirectory::~ThreadDirectory() {
  ended = true;
  recent = Recent{};
  for (auto& [id, local] : entries) {
    Local* mine = local;
    Registry::Global().With(id, [mine](Pool* pool) { pool->Retire(mine); });
  }
}

// What the calling thread has of this pool; nullptr once the thread is ending.
Local* Pool::FindLocal() {
  if (ended) return nullptr;
  Local* found = nullptr;
  for (auto& [id, local] : directory.entries) {
    if (id == id_) found = local;
  }
  recent = Recent{id_, found == nullptr ? AddLocal() : found};
  return recent.local;
}

Local* Pool::AddLocal() {
  auto gone = [](const auto& entry) { return !Registry::Global().Has(entry.first); };
  auto& entries = directory.entries;
  entries.erase(std::remove_if(entries.begin(), entries.end(), gone), entries.end());
  entries.reserve(entries.size() + 1);  // what follows fails before anything is changed, or not at all
  auto fresh = std::make_unique<Local>();
  Local* added = fresh.get();
  std::lock_guard<std::mutex> lock(mutex_);
  locals_.push_back(std::move(fresh));
  entries.emplace_back(id_, added);
  return added;
}

void Pool::Retire(Local* local) {
  std::lock_guard<std::mutex> lock(mutex_);
  FlushLocked(local);
  retired_allocs_ += local->allocs;
  retired_frees_ += local->frees;
  retired_live_ += local->live.left();
  locals_.erase(std::find_if(locals_.begin(), locals_.end(), [local](auto& l) { return l.get() == local; }));
}

// Nobody else is at any bins once this returns, until `OpenBins`.
void Pool::CloseBinsLocked() {
  closed_.store(true, std::memory_order_seq_cst);
  HeavyBarrier();
  for (auto& local : locals_) local->section.AwaitLeft();
}

// Empties the bins of all threads but that of `local`; whether anything was in them.
bool Pool::FlushOthersLocked(const Local* local) {
  auto holds = [local](auto& each) { return each.get() != local && each->held() > 0; };
  if (std::none_of(locals_.begin(), locals_.end(), holds)) return false;
  struct Opener {
    ~Opener() { pool->OpenBins(); }
    Pool* pool;
  };
  Opener opener{this};
  CloseBinsLocked();
  for (auto& each : locals_) {
    if (each.get() != local) FlushLocked(each.get());
  }
  return true;
}

void Pool::FlushLocked(Local* local) {
  if (local == nullptr) return;
  for (Bins& bins : local->bins) FlushLocked(&bins);
  for (Piece& piece : local->pieces) FlushLocked(&piece);
}

void Pool::FlushLocked(Bins* bins) {
  bins->Flush([this](void* block, int64_t size) { ReleaseLocked(block, size); });
}

void Pool::FlushLocked(Piece* piece) {
  piece->Flush([this](void* block, int64_t size) { ReleaseLocked(block, size); });
}

// For a fork: no thread is in the middle of anything.
void Pool::LockAll() {
  for (std::mutex* mutex : held_at_fork_) mutex->lock();
  CloseBinsLocked();
}

void Pool::UnlockAll() {
  OpenBins();
  for (std::mutex* mutex : held_at_fork_) mutex->unlock();
}

}  // namespace symalloc

// Limits that move, and the callbacks at watermarks and for want of memory.
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "pool/pool.h"

namespace symalloc {

namespace {

// A callback for want of memory that runs in this thread.
struct Asking {
  explicit Asking(uint64_t pool) : pool(pool), outer(innermost) { innermost = this; }
  ~Asking() { innermost = outer; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

  static bool Runs(uint64_t pool) {
    const Asking* each = innermost;
    while (each != nullptr && each->pool != pool) each = each->outer;
    return each != nullptr;
  }

  const uint64_t pool;
  const Asking* const outer;
  static thread_local const Asking* innermost;
};

thread_local const Asking* Asking::innermost = nullptr;

}  // namespace

void Pool::SetLimit(int64_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  range_.limit = limit;
  WakeLocked();
}

int64_t Pool::limit() {
  std::lock_guard<std::mutex> lock(mutex_);
  return range_.limit;
}

int64_t Pool::AddWatermark(Watermark watermark) {
  std::lock_guard<std::mutex> lock(mutex_);
  return watermarks_.Add(std::move(watermark), used_);
}

void Pool::RemoveWatermark(int64_t id) {
  Watermarks::List removed;  // goes after the lock
  std::lock_guard<std::mutex> lock(mutex_);
  removed = watermarks_.Remove(id);
}

void Pool::SetOnOom(OnOom on_oom, int64_t retries) {
  auto shared = on_oom ? std::make_shared<const OnOom>(std::move(on_oom)) : nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  on_oom_.swap(shared);  // what was there goes without the lock
  oom_retries_ = retries;
}

void Pool::ClearCallbacks() {
  SetOnOom(nullptr, 0);
  Watermarks::List removed;  // goes after the lock
  std::lock_guard<std::mutex> lock(mutex_);
  removed = watermarks_.Clear();
}

// Calls the watermarks that are due, but those that another of them removes.  A callback may use the pool.  What it
// throws of std::runtime_error is printed; anything else leaves here, and the others stay due.
void Pool::CallWatermarks() {
  Watermarks::List due;
  int64_t in_use;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    due = watermarks_.Take();
    in_use = used_;
  }
  for (size_t i = 0; i < due.size(); ++i) {
    try {
      CallWatermark(due[i].get(), in_use);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      while (++i < due.size()) watermarks_.Return(due[i].get());
      throw;
    }
  }
}

void Pool::CallWatermark(Watermark* watermark, int64_t in_use) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (watermark->removed) return;
  }
  struct Done {
    ~Done() {
      std::lock_guard<std::mutex> lock(pool->mutex_);
      pool->watermarks_.Done(watermark, pool->used_);
    }
    Pool* pool;
    Watermark* watermark;
  } done{this, watermark};
  try {
    watermark->callback(in_use);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "symalloc: a callback at a watermark failed: %s\n", error.what());
  }
}

// The same after an allocation: where a callback throws, nobody gets the block.
void Pool::CallWatermarksWith(void* block, int64_t nbytes) {
  try {
    CallWatermarks();
  } catch (...) {
    ChargeRef charge = Uncharge(block);
    TakeBack(block, nbytes);
    Refund(charge, nbytes);
    throw;
  }
}

// True where an allocation that failed `tries` + 1 times is to be tried again.
bool Pool::AskForMemory(const Request& asked, int64_t tries, const OutOfMemory& error) {
  std::shared_ptr<const OnOom> on_oom;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!IsAsking() && tries < oom_retries_) on_oom = on_oom_;
  }
  if (on_oom == nullptr) return false;
  try {
    Asking here(quick_.id);
    return (*on_oom)(asked.nbytes, tries, error.what());
  } catch (const std::runtime_error& failed) {
    CountRefused(asked);
    throw OutOfMemory(std::string(error.what()) + "\n  the on_oom callback failed: " + failed.what());
  } catch (...) {
    CountRefused(asked);
    throw;
  }
}

bool Pool::IsAsking() const { return Asking::Runs(quick_.id); }

void Pool::CountRefused(const Request& asked) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++refused_;
  if (asked.charge == nullptr) return;
  for (const auto& session : *asked.charge) ++session->refused;
}

}  // namespace symalloc

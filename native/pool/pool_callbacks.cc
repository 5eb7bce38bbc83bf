// Limits that move, and the callbacks at watermarks and for want of memory.
#include <cstdio>
#include <utility>

#include "pool/pool.h"

namespace symalloc {

namespace {

thread_local bool asking = false;  // a callback for want of memory runs in this thread

struct InCallback {
  InCallback() { asking = true; }
  ~InCallback() { asking = false; }
};

}  // namespace

void Pool::SetLimit(int64_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  ranges_.limit = limit;
}

int64_t Pool::limit() {
  std::lock_guard<std::mutex> lock(mutex_);
  return ranges_.limit;
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

// Calls the watermarks that are due.  A callback may use the pool; what it throws is printed, and goes no further.
void Pool::CallWatermarks() {
  Watermarks::List due;
  int64_t in_use;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    due = watermarks_.Take();
    in_use = used_;
  }
  for (auto& watermark : due) {
    try {
      watermark->callback(in_use);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "symalloc: a callback at a watermark failed: %s\n", error.what());
    }
    std::lock_guard<std::mutex> lock(mutex_);
    watermarks_.Done(watermark.get(), used_);
  }
}

// True where an allocation that failed `tries` + 1 times is to be tried again.
bool Pool::AskForMemory(int64_t nbytes, int64_t tries, const OutOfMemory& error) {
  std::shared_ptr<const OnOom> on_oom;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!asking && tries < oom_retries_) on_oom = on_oom_;
    refused_ += on_oom == nullptr;
  }
  if (on_oom == nullptr) return false;
  try {
    InCallback here;
    if ((*on_oom)(nbytes, tries, error.what())) return true;
  } catch (const std::exception& failed) {
    CountRefused();
    throw OutOfMemory(std::string(error.what()) + "\n  the on_oom callback failed: " + failed.what());
  }
  CountRefused();
  return false;
}

void Pool::CountRefused() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++refused_;
}

}  // namespace symalloc

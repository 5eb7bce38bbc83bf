// Why blocks may not come and go the quickest way.
#pragma once

#include <atomic>
#include <cstdint>

namespace symalloc {

// One word, so that the quickest way looks once.
class QuickFlags {
 public:
  enum Flag : uint32_t {
    kTracking = 1,  // the tracker notes blocks
    kCharging = 2,  // they are charged to sessions
    kClosed = 4,    // the holder of the mutex is at the caches of others
    kDue = 8,       // a watermark is to be called
    kHeavy = 16,    // each section passes a full barrier, as there is none that its visitor passes for both
  };

  bool any() const { return flags_.load(std::memory_order_seq_cst) != 0; }
  bool Has(uint32_t flags) const { return (flags_.load(std::memory_order_seq_cst) & flags) != 0; }

  void Set(Flag flag, bool on) {
    if (on) {
      flags_.fetch_or(flag, std::memory_order_seq_cst);
    } else {
      flags_.fetch_and(~uint32_t{flag}, std::memory_order_seq_cst);
    }
  }

 private:
  std::atomic<uint32_t> flags_{0};
};

}  // namespace symalloc

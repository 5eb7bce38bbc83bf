// Whether a program writes the fresh memory that it takes.
#pragma once

#include <cstdint>

#include "pool/os_memory.h"

namespace symalloc {

// Watches the last page of each fresh run, which is left to its program.  Where that has been written when more is taken,
// the pages of the next run are made at once, which costs two thirds of a fault for each.
class FirstTouches {
 public:
  // True where the pages of a fresh run but for the last should be made at once.  `last`: that one.
  bool Expected(char* last, int64_t nbytes) {
    if (nbytes < kLeast) return false;
    bool written = watched_ != nullptr && IsResident(watched_);
    watched_ = last;
    return written && nbytes <= kMost;
  }

 private:
  static constexpr int64_t kLeast = 128 << 10, kMost = 16 << 20;  // bytes

  char* watched_ = nullptr;
};

}  // namespace symalloc

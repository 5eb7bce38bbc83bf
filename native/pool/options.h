// Options, statistics and errors of a pool.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "pool/sizes.h"

namespace symalloc {

struct Options {
  // a soft limit of numerator / denominator times what is in use at most; denominator 0: of `numerator`
  // bytes; numerator -1: none
  int64_t soft_numerator = 11;
  int64_t soft_denominator = 10;
  int64_t limit = -1;  // bytes; -1: none
  int64_t page = 64 << 10;
  int64_t bin_largest = kBinLargest;
  int64_t bin_capacity = 2 << 20;  // bytes that a thread caches in bins; twice as many in large blocks
  int64_t capacity = 0;  // bytes of address space of a range; 0: as `RangeCapacity` says
  bool huge = true;
  bool guard = false;
  int64_t wait = 0;  // ns that an allocation waits for memory, where it does not say itself
  void (*check_interrupts)() = nullptr;  // called now and then, without a lock, by whoever waits; it may throw
  double decay = 0;  // seconds after which free pages that nobody needed go back; 0: never
};

struct Statistics {
  int64_t live = 0;       // bytes asked for and not freed
  int64_t allocs = 0;
  int64_t frees = 0;
  int64_t used = 0;       // bytes that the ranges have handed out, to callers or to caches
  int64_t peak_used = 0;  // the most of that at a time
  int64_t reserved = 0;   // bytes backed
  int64_t peak_reserved = 0;
  int64_t refused = 0;    // allocations that did not fit
  int64_t commits = 0, committed = 0, decommits = 0, decommitted = 0;
  int64_t threads = 0;
};

// What a pool refuses or finds; `kind` is the name of the error in Python.
struct PoolError : std::runtime_error {
  PoolError(const char* kind, const std::string& text) : std::runtime_error(text), kind(kind) {}
  const char* kind;
};

struct OutOfMemory : PoolError {
  explicit OutOfMemory(const std::string& text) : PoolError("OutOfMemoryError", text) {}
};

// Arguments that make no sense, or a pool that is closed.
struct PoolUsage : PoolError {
  explicit PoolUsage(const std::string& text) : PoolError("PoolUsageError", text) {}
};

struct BadFree : PoolError {
  explicit BadFree(const std::string& text) : PoolError("BadFreeError", text) {}
};

// Memory around a block was written.
struct Overrun : PoolError {
  explicit Overrun(const std::string& text) : PoolError("OverrunError", text) {}
};

}  // namespace symalloc

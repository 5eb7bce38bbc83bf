// The report on an allocation that does not fit: symalloc/pool/core/out_of_memory.py is the reference for the text.
#pragma once

#include <cstdint>
#include <string>

namespace symalloc {

// Why a block does not fit under the limit, all that is free having been given back.  Sizes in bytes.
struct OutOfMemoryReport {
  int64_t size;      // of the block, rounded up
  int64_t limit;
  int64_t in_use;    // by blocks
  int64_t in_bins;   // waiting in the bins of other threads
  int64_t reserved;
  int64_t missing;   // pages to back at the best place for the block
  int64_t piece;     // the largest free piece within backed pages

  std::string Text() const;
};

std::string NoAddressSpace(int64_t size, int64_t piece, int64_t capacity);

}  // namespace symalloc

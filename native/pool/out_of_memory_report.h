// The report on an allocation that does not fit: tests/pool/reference/out_of_memory.py is the reference for the text.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace symalloc {

// Why a block does not fit under the limit, all that is free having been given back.  Sizes in bytes.
struct OutOfMemoryReport {
  int64_t size;      // of the block, rounded up
  int64_t limit;
  int64_t in_use;    // by blocks
  int64_t reserved;
  int64_t missing;   // pages to back at the best place for the block
  int64_t piece;     // the largest free piece within backed pages

  std::string Text() const;
};

// Blocks that have something in common.
struct Holding {
  int64_t nbytes = 0;
  int64_t blocks = 0;
};

// "\n  held: `weights` 4096 bytes in 2 blocks, …" for the tags that hold most; those without one stand under "".  ""
// where nothing has a tag.
std::string HeldText(const std::map<std::string, Holding>& by_tag);

// Why a block does not fit into a session that holds `taken` bytes; `paged`: in whole pages, which were claimed.
std::string OverBudgetText(const std::string& session, int64_t nbytes, int64_t limit, int64_t taken, bool paged);

// "\n  session: …" of one within which something does not fit into the pool.  `limit`: -1: none.
std::string SessionText(const std::string& session, int64_t live, int64_t limit);

std::string NoAddressSpace(int64_t size, int64_t piece, int64_t capacity);

}  // namespace symalloc

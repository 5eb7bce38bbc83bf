// The search for arenas that are held for a part of a call, in symalloc/planner/buffers/assignment.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace symalloc::packer {

// Buffers to divide among strips.  All bytes are given at `bindings` bindings, one beside the other.
struct StripProblem {
  size_t bindings;
  std::vector<int32_t> begins, ends;  // columns of each buffer; begins ascend
  std::vector<int32_t> allowed;       // the strips that each may lie in, as bits
  std::vector<int32_t> kinds;         // the row of `sizes` of each
  std::vector<double> sizes;
  std::vector<double> rooms;    // the bytes that may be held at each column
  std::vector<int32_t> untils;  // the column at which each strip is gone
  std::vector<double> heights;  // the bytes of each strip at least
  std::vector<int32_t> fixed;   // 1 for a strip that may hold no more than that
  std::vector<double> weights;  // of a byte at each binding
};

// The strip of each buffer, such that all that are held at a column have room there; empty where none is found.
//
// A beam search: what is possible so far is tried with each next buffer in each strip, and `most` of that go on, those
// that take least.  A strip is held from its first buffer on.
std::vector<int32_t> DivideAmongStrips(const StripProblem& problem, size_t most);

}  // namespace symalloc::packer

// Buffers put one after the other where there is room: first fit and best fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "packer/problem.h"

namespace symalloc::packer {

// What lies in memory so far.  It takes memory in proportion to the buffers; to put one looks at those that lie there.
class FirstFit {
 public:
  // `lives` lists for each buffer where it begins and ends to live, one interval after the other.  Sizes are > 0.
  FirstFit(std::vector<int64_t> sizes, std::vector<int64_t> alignments, Lists lives);

  // Lays `buffer` at `offset`, whatever lies there.
  void Lay(int32_t buffer, int64_t offset);
  // Lays `buffer` into the lowest gap between those that it lives with, or the smallest one; its offset.
  int64_t Put(int32_t buffer, bool smallest);
  // How many buffers were looked at.
  int64_t looks() const { return looks_; }

 private:
  // Intervals of buffers by offset: short arrays, so that little moves when one comes between.
  struct Chunk {
    std::vector<int32_t> begins, ends;
    std::vector<int64_t> starts, tops;
  };
  static constexpr size_t kMostInChunk = 512;

  int64_t Place(int32_t buffer, bool smallest);
  // Marks those in `chunk` that live at some time of `lives`.
  void Mark(const Chunk& chunk, Lists::List lives);

  const std::vector<int64_t> sizes_, alignments_;
  const Lists lives_;
  std::vector<Chunk> chunks_;
  std::vector<uint8_t> marks_;
  int64_t looks_ = 0;
};

}  // namespace symalloc::packer

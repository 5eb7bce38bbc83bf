#include "packer/first_fit.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace symalloc::packer {

FirstFit::FirstFit(std::vector<int64_t> sizes, std::vector<int64_t> alignments, Lists lives)
    : sizes_(std::move(sizes)), alignments_(std::move(alignments)), lives_(std::move(lives)), chunks_(1) {}

int64_t FirstFit::Put(int32_t buffer, bool smallest) {
  const int64_t offset = Place(buffer, smallest);
  Lay(buffer, offset);
  return offset;
}

void FirstFit::Lay(int32_t buffer, int64_t offset) {
  const auto lives = lives_[buffer];
  for (const int32_t* live = lives.begin(); live != lives.end(); live += 2) {
    const auto above = [](int64_t at, const Chunk& chunk) { return at < chunk.starts.front(); };
    auto chunk = std::upper_bound(chunks_.begin() + 1, chunks_.end(), offset, above) - 1;
    const auto at = std::upper_bound(chunk->starts.begin(), chunk->starts.end(), offset) - chunk->starts.begin();
    const auto insert = [at](auto* list, auto value) { list->insert(list->begin() + at, value); };
    insert(&chunk->starts, offset);
    insert(&chunk->tops, offset + sizes_[buffer]);
    insert(&chunk->begins, live[0]);
    insert(&chunk->ends, live[1]);
    if (chunk->starts.size() <= kMostInChunk) continue;
    Chunk upper;
    const auto halve = [](auto* list, auto* rest) {
      rest->assign(list->begin() + kMostInChunk / 2, list->end());
      list->resize(kMostInChunk / 2);
    };
    halve(&chunk->starts, &upper.starts);
    halve(&chunk->tops, &upper.tops);
    halve(&chunk->begins, &upper.begins);
    halve(&chunk->ends, &upper.ends);
    chunks_.insert(chunk + 1, std::move(upper));
  }
}

int64_t FirstFit::Place(int32_t buffer, bool smallest) {
  const int64_t size = sizes_[buffer], step = alignments_[buffer];
  const auto aligned = [step](int64_t offset) { return (offset + step - 1) / step * step; };
  int64_t top = 0, found = -1, least = std::numeric_limits<int64_t>::max();
  for (const Chunk& chunk : chunks_) {
    Mark(chunk, lives_[buffer]);
    for (size_t word = 0; word < chunk.starts.size(); word += sizeof(uint64_t)) {
      uint64_t marks;
      std::memcpy(&marks, &marks_[word], sizeof marks);
      for (; marks != 0; marks &= marks - 1) {  // each byte is 0 or 1
        const size_t k = word + __builtin_ctzll(marks) / 8;
        const int64_t gap = chunk.starts[k] - top;
        if (gap >= size && gap < least && aligned(top) + size <= chunk.starts[k]) {
          if (!smallest) return aligned(top);
          found = aligned(top);
          least = gap;
        }
        top = std::max(top, chunk.tops[k]);
      }
    }
  }
  return found < 0 ? aligned(top) : found;
}

void FirstFit::Mark(const Chunk& chunk, Lists::List lives) {
  const size_t size = chunk.starts.size();
  looks_ += static_cast<int64_t>(size);
  marks_.assign(kMostInChunk, 0);
  uint8_t* marks = marks_.data();
  const int32_t *begins = chunk.begins.data(), *ends = chunk.ends.data();
  for (const int32_t* live = lives.begin(); live != lives.end(); live += 2) {
    const int32_t begin = live[0], end = live[1];
    for (size_t k = 0; k < size; ++k) marks[k] |= (begins[k] < end) & (ends[k] > begin);
  }
}

}  // namespace symalloc::packer

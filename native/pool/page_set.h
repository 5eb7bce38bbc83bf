// Sets of pages.
#pragma once

#include <array>
#include <algorithm>
#include <cstdint>
#include <vector>

namespace symalloc {

// The bits [from, to) of a word, 0 <= from < to <= 64.
inline uint64_t WordMask(int64_t from, int64_t to) {
  uint64_t upto = to == 64 ? ~uint64_t{0} : (uint64_t{1} << to) - 1;
  return upto & ~((uint64_t{1} << from) - 1);
}

// The number of bits that are set; the builtin is a call, on machines of any age.
inline int64_t CountBits(uint64_t bits) {
  bits -= bits >> 1 & 0x5555555555555555;
  bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return static_cast<int64_t>(bits * 0x0101010101010101 >> 56);
}

// A set of page numbers, one bit each, with two levels of words above that say which words hold any.
class PageSet {
 public:
  static constexpr int64_t kNone = -1;

  // Makes room for the pages below `last`: to insert them cannot fail any more.
  void Reserve(int64_t last) {
    if ((last + 63) >> 6 > static_cast<int64_t>(levels_[0].size())) Grow((last + 63) >> 6);
  }

  void Insert(int64_t first, int64_t last) {
    if (last > first) Reserve(last);
    ForWords(first, last, [this](int64_t word, uint64_t mask) {
      count_ += CountBits(mask & ~levels_[0][word]);
      if (levels_[0][word] == 0) Mark(word);
      levels_[0][word] |= mask;
    });
  }

  void Erase(int64_t first, int64_t last) {
    ForWords(first, std::min(last, static_cast<int64_t>(levels_[0].size()) * 64), [this](int64_t word, uint64_t mask) {
      if (levels_[0][word] == 0) return;
      count_ -= CountBits(mask & levels_[0][word]);
      levels_[0][word] &= ~mask;
      if (levels_[0][word] == 0) Unmark(word);
    });
  }

  bool Has(int64_t page) const {
    return (page >> 6) < static_cast<int64_t>(levels_[0].size()) && (levels_[0][page >> 6] >> (page & 63) & 1) != 0;
  }

  int64_t count() const { return count_; }

  // The highest page, or kNone.
  int64_t Highest() const {
    for (int64_t top = static_cast<int64_t>(levels_[2].size()) - 1; top >= 0; --top) {
      if (levels_[2][top] == 0) continue;
      int64_t at = top;
      for (int level = 2; level >= 0; --level) at = at << 6 | (63 - __builtin_clzll(levels_[level][at]));
      return at;
    }
    return kNone;
  }

  // Calls visit(begin, end) for the runs of pages in [first, last), the highest first, until it returns false.
  template <typename Visit>
  void RunsIn(int64_t first, int64_t last, Visit visit) const {
    last = std::min(last, static_cast<int64_t>(levels_[0].size()) * 64);
    for (int64_t end; (end = EndOfHighest(first, last)) > first;) {
      last = BeginOfRun(first, end);
      if (!visit(last, end)) return;
    }
  }

  // Calls visit(word, mask) for the words that the pages [first, last) lie in.
  template <typename Visit>
  static void ForWords(int64_t first, int64_t last, Visit visit) {
    for (int64_t word = first >> 6; first < last && word << 6 < last; ++word) {
      visit(word, WordMask(std::max<int64_t>(first - (word << 6), 0), std::min<int64_t>(last - (word << 6), 64)));
    }
  }

 private:
  // Where the highest page of [first, last) ends, at most `first` where there is none.
  int64_t EndOfHighest(int64_t first, int64_t last) const {
    for (int64_t word = (last - 1) >> 6; word >= first >> 6 && last > first; --word) {
      uint64_t pages = levels_[0][word];
      if (last < (word + 1) << 6) pages &= WordMask(0, last & 63);
      if (pages != 0) return (word << 6) + 64 - __builtin_clzll(pages);
      uint64_t below = levels_[1][word >> 6] & WordMask(0, word & 63);
      word = (word & -64) + (below == 0 ? 0 : 64 - __builtin_clzll(below));
    }
    return first;
  }

  // Where the run begins, within [first, end), that ends at `end`.
  int64_t BeginOfRun(int64_t first, int64_t end) const {
    for (int64_t word = (end - 1) >> 6; word >= first >> 6; --word) {
      uint64_t absent = ~levels_[0][word];
      if (end < (word + 1) << 6) absent &= WordMask(0, end & 63);
      if (absent != 0) return std::max(first, (word << 6) + 64 - __builtin_clzll(absent));
    }
    return first;
  }

  void Grow(int64_t words) {
    for (int level : {2, 1, 0}) {  // the first level, which is looked at for room, last
      int64_t groups = int64_t{1} << (6 * level);
      levels_[level].resize(std::max<size_t>(levels_[level].size(), (words + groups - 1) / groups));
    }
  }
  void Mark(int64_t word) {
    for (int level : {1, 2}) {
      levels_[level][word >> 6] |= uint64_t{1} << (word & 63);
      word >>= 6;
    }
  }
  void Unmark(int64_t word) {
    for (int level : {1, 2}) {
      uint64_t& above = levels_[level][word >> 6];
      above &= ~(uint64_t{1} << (word & 63));
      if (above != 0) return;
      word >>= 6;
    }
  }

  std::array<std::vector<uint64_t>, 3> levels_;
  int64_t count_ = 0;
};

}  // namespace symalloc

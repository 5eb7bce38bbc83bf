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
      count_ += __builtin_popcountll(mask & ~levels_[0][word]);
      if (levels_[0][word] == 0) Mark(word);
      levels_[0][word] |= mask;
    });
  }

  void Erase(int64_t first, int64_t last) {
    ForWords(first, std::min(last, static_cast<int64_t>(levels_[0].size()) * 64), [this](int64_t word, uint64_t mask) {
      if (levels_[0][word] == 0) return;
      count_ -= __builtin_popcountll(mask & levels_[0][word]);
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

  // The highest page of [first, last), or below `first` where there is none.
  int64_t HighestIn(int64_t first, int64_t last) const {
    int64_t word = std::min((last - 1) >> 6, static_cast<int64_t>(levels_[0].size()) - 1);
    for (; word >= 0 && word >= first >> 6; --word) {
      uint64_t pages = levels_[0][word];
      if (last < (word + 1) << 6) pages &= WordMask(0, last & 63);
      if (pages != 0) return word << 6 | (63 - __builtin_clzll(pages));
    }
    return first - 1;
  }

  // Calls visit(word, mask) for the words that the pages [first, last) lie in.
  template <typename Visit>
  static void ForWords(int64_t first, int64_t last, Visit visit) {
    for (int64_t word = first >> 6; first < last && word << 6 < last; ++word) {
      visit(word, WordMask(std::max<int64_t>(first - (word << 6), 0), std::min<int64_t>(last - (word << 6), 64)));
    }
  }

 private:
  void Grow(int64_t words) {
    for (auto& level : levels_) {
      level.resize(std::max<size_t>(level.size(), words));
      words = (words + 63) >> 6;
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

// A static packing problem made ready for search: CliqueInstance of symalloc/planner/packing/exact_packing.py, in flat arrays.
#pragma once

#include <cstdint>
#include <vector>

namespace symalloc::packer {

// Lists of numbers, one after the other.
class Lists {
 public:
  class List {
   public:
    List(const int32_t* begin, const int32_t* end) : begin_(begin), end_(end) {}
    const int32_t* begin() const { return begin_; }
    const int32_t* end() const { return end_; }
    int32_t front() const { return *begin_; }
    int32_t back() const { return *(end_ - 1); }
    int64_t size() const { return end_ - begin_; }

   private:
    const int32_t* begin_;
    const int32_t* end_;
  };

  // List i holds items[starts[i]] to items[starts[i + 1] - 1]; there are `count` lists.
  Lists(const int32_t* starts, const int32_t* items, int32_t count)
      : starts_(starts, starts + count + 1), items_(items, items + starts[count]) {}

  int32_t size() const { return static_cast<int32_t>(starts_.size()) - 1; }
  List operator[](int32_t i) const { return {items_.data() + starts_[i], items_.data() + starts_[i + 1]}; }

 private:
  std::vector<int32_t> starts_;
  std::vector<int32_t> items_;
};

// Sizes and offsets are in units.  Buffers are numbered in the order of their first clique; all lists ascend.
struct Problem {
  int64_t capacity;
  std::vector<int64_t> sizes;
  std::vector<int64_t> alignments;
  std::vector<int64_t> lowest;   // the first offset that a buffer may have
  std::vector<int64_t> highest;  // the last one
  Lists cliques;                 // per buffer: the cliques that it is in
  Lists members;                 // per clique: the buffers in it
  Lists neighbours;              // per buffer: those that it must not share a unit with

  int32_t count() const { return static_cast<int32_t>(sizes.size()); }
};

}  // namespace symalloc::packer

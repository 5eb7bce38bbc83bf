// Pages between the place that they were free at and where they go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "pool/os_memory.h"

namespace symalloc {

// Pages that were given back to make room, on their way to where memory is missing.
// Moving a page costs a fraction of what giving it back and touching a fresh one costs.  Pages that are not moved go
// back to the operating system.
class PageRecycler {
 public:
  explicit PageRecycler(bool huge) : huge_(huge) {}
  ~PageRecycler() { GiveBack(); }
  PageRecycler(const PageRecycler&) = delete;
  PageRecycler& operator=(const PageRecycler&) = delete;

  void Add(char* base, int64_t nbytes) noexcept {
    try {
      runs_.push_back({base, nbytes});
    } catch (const std::bad_alloc&) {
      GiveBackPages(base, nbytes, huge_);
    }
  }
  bool empty() const { return runs_.empty(); }

  // Moves pages to [to, to + nbytes), where there are none, as far as they go.
  void MoveTo(char* to, int64_t nbytes);

  void GiveBack();

  // The part that was added last, at most about `nbytes` bytes.
  struct Part {
    size_t whole;   // so many runs at the end
    int64_t bytes;  // and so many at the end of the one before
  };
  Part Last(int64_t nbytes) const;

  // Gives a part back, which stays known until it is dropped.
  void GiveBack(const Part& part) const;

  // The bytes dropped.
  int64_t Drop(const Part& part);

 private:
  friend class Limbo;

  struct Run {
    char* base;
    int64_t nbytes;
  };

  const bool huge_;
  std::vector<Run> runs_;
  PageRecycler* next_ = nullptr;  // in limbo
};

// The pages that threads give back to the operating system without the pool's mutex: they are free and in the books as
// not backed, but nobody may be given their addresses before they have gone.  Guarded by the pool's mutex.
class Limbo {
 public:
  bool empty() const { return first_ == nullptr; }

  // Bytes of all pages.
  int64_t bytes() const { return bytes_; }

  // True where some of the pages lie in [begin, begin + nbytes).
  bool Touches(const char* begin, int64_t nbytes) const;

  // What `recycler` holds; it must be removed before it goes.
  void Add(PageRecycler* recycler);
  void Remove(PageRecycler* recycler);

  // `part` of a recycler that is here has gone.
  void Drop(PageRecycler* recycler, const PageRecycler::Part& part) { bytes_ -= recycler->Drop(part); }

  // In a forked process: gives all back in place of the threads that would have, which it has not.
  void Inherit();

 private:
  PageRecycler* first_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace symalloc

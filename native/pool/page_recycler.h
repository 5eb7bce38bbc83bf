// Pages between the place that they were free at and where they go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "pool/os_memory.h"

namespace symalloc {

// What is left to do for a block that has its place, without the pool's mutex: pages that were given back to make room
// are moved to where the block lacks some, the others go back to the operating system, and huge pages, or pages that are
// about to be written, are asked for.
// Moving a page costs a fraction of what giving it back and touching a fresh one costs.
class PageRecycler {
 public:
  PageRecycler() = default;
  ~PageRecycler() { GiveBack(); }
  PageRecycler(const PageRecycler&) = delete;
  PageRecycler& operator=(const PageRecycler&) = delete;

  // Those that come one below the other become one run.
  void Add(const PageRun& run) noexcept {
    if (!runs_.empty() && run.base + run.nbytes == runs_.back().base) {
      runs_.back() = {run.base, run.nbytes + runs_.back().nbytes};
      return;
    }
    try {
      runs_.push_back(run);
    } catch (const std::bad_alloc&) {
      GiveBackPages(&run, 1);
    }
  }
  bool empty() const { return runs_.empty(); }

  // Moves pages to [to, to + nbytes), where there are none, as far as they go, if they hold anything.
  void MoveTo(char* to, int64_t nbytes);

  // The same, but when parts are settled.
  void MoveLater(char* to, int64_t nbytes) noexcept;

  // [base, base + nbytes) may lie on huge pages; false where it cannot be noted.
  bool WantHuge(char* base, int64_t nbytes) noexcept;

  // The pages of a fresh run are about to be written.
  void WantPages(char* base, int64_t nbytes) noexcept;
  void ForgoPages() { pages_wanted_.clear(); }

  // True where the system is to be asked for what is wanted.
  bool wants() const { return !huge_wanted_.empty() || !pages_wanted_.empty(); }
  void Ask();

  // [base, base + nbytes), of which pages are added, may lie on huge pages no more.
  void ForgoHuge(char* base, int64_t nbytes) noexcept;

  void GiveBack();

  // The part that goes next: about `nbytes` bytes at most, or what can be moved at once.
  struct Part {
    size_t whole;   // so many runs at the end
    int64_t bytes;  // and so many at the end of the one before
  };
  Part Next(int64_t nbytes) const;

  // Moves a part, or gives it back; it stays known until it is dropped.
  void Settle(const Part& part);

  // The bytes dropped.
  int64_t Drop(const Part& part);

 private:
  friend class Limbo;

  Part Last(int64_t nbytes) const;
  bool Move(const Part& part);
  bool Touched();
  void ForgoAll();

  std::vector<PageRun> runs_;
  bool looked_ = false, touched_ = false;  // whether the first page to be moved holds anything
  std::vector<PageRun> wanted_;
  std::vector<PageRun> huge_wanted_, huge_forgone_, pages_wanted_;
  PageRecycler* next_ = nullptr;  // in limbo
};

// The pages that threads give back to the operating system without the pool's mutex: they are free and in the books as
// not backed, but nobody may be given their addresses before they have gone.  Guarded by the pool's mutex.
class Limbo {
 public:
  bool empty() const { return first_ == nullptr; }

  // Bytes of all pages.
  int64_t bytes() const { return bytes_; }

  // The end of a run of pages that lies in [begin, begin + nbytes), in part; nullptr where none does.
  const char* EndWithin(const char* begin, int64_t nbytes) const;

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

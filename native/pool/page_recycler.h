// Pages that were given back to make room, on their way to where memory is missing.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace symalloc {

// Moving a page costs a fraction of what giving it back and touching a fresh one costs.  Pages that are not moved go
// back to the operating system.
class PageRecycler {
 public:
  explicit PageRecycler(bool huge) : huge_(huge) {}
  ~PageRecycler() { GiveBack(); }
  PageRecycler(const PageRecycler&) = delete;
  PageRecycler& operator=(const PageRecycler&) = delete;

  void Add(char* base, int64_t nbytes) { runs_.emplace_back(base, nbytes); }
  bool empty() const { return runs_.empty(); }

  // Moves pages to [to, to + nbytes), where there are none, as far as they go.
  void MoveTo(char* to, int64_t nbytes);

  void GiveBack();

 private:
  bool huge_;
  std::vector<std::pair<char*, int64_t>> runs_;
};

}  // namespace symalloc

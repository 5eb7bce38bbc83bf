#include "pool/page_recycler.h"

#include <algorithm>

#include "pool/os_memory.h"

namespace symalloc {

void PageRecycler::MoveTo(char* to, int64_t nbytes) {
  while (nbytes > 0 && !runs_.empty()) {
    auto& [base, left] = runs_.back();
    int64_t moved = std::min(left, nbytes);
    if (!MovePages(base + left - moved, to, moved, huge_)) return;
    to += moved;
    nbytes -= moved;
    left -= moved;
    if (left == 0) runs_.pop_back();
  }
}

void PageRecycler::GiveBack() {
  for (auto& [base, nbytes] : runs_) GiveBackPages(base, nbytes, huge_);
  runs_.clear();
}

}  // namespace symalloc

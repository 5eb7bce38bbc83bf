// Address space and pages of the operating system.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace symalloc {

constexpr int64_t kHugePage = 2 << 20;

// Address space of `nbytes` bytes at a multiple of `align`, a power of two of at least a page; nullptr where there is
// none.  It may not be touched, and is charged to nobody.
char* ReserveAddresses(int64_t nbytes, int64_t align);

// Makes reserved addresses zero and not backed until they are touched; false where the system refuses.
bool MakeWritable(char* base, int64_t nbytes);

void ReleaseAddresses(char* base, int64_t nbytes);

// Gives the pages [base, base + nbytes) back; they read as zero when they are touched again.
void GiveBackPages(char* base, int64_t nbytes, bool huge);

// Asks for huge pages where [base, base + nbytes) covers them wholly, so that touching one byte never backs
// more than the caller has asked for.
void AskForHugePages(char* base, int64_t nbytes);

// Pages that were given back to make room, on their way to where memory is missing.
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

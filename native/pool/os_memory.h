// Address space and pages of the operating system.
#pragma once

#include <cstddef>
#include <cstdint>

namespace symalloc {

constexpr int64_t kHugePage = 2 << 20;

// Address space of `nbytes` bytes at a multiple of `align`, a power of two of at least a page; nullptr where there is
// none.  It may not be touched, and is charged to nobody.
char* ReserveAddresses(int64_t nbytes, int64_t align);

// Makes reserved addresses zero and not backed until they are touched; false where the system refuses.
bool MakeWritable(char* base, int64_t nbytes);

void ReleaseAddresses(char* base, int64_t nbytes);

// Pages side by side.
struct PageRun {
  char* base;
  int64_t nbytes;
};

// Gives pages back; they read as zero when they are touched again.
void GiveBackPages(const PageRun* runs, size_t count);

// True where a page is in memory, not knowing is true.
bool IsResident(char* page);

// Makes fresh pages of a run, zeros, as if each had been written; where the system cannot, they are made when they are.
void MakePages(const PageRun& run);

// Asks for huge pages where [base, base + nbytes) covers them wholly, so that touching one byte never backs
// more than the caller has asked for.
void AskForHugePages(char* base, int64_t nbytes);

// Ends that for whole huge pages, some of which is to go: what comes there later may be smaller.
void ForgoHugePages(char* base, int64_t nbytes);

// Moves pages to `to`, where there are none; where they were stays mapped and reads as zero.
// False where the system cannot, or the process has many mappings: then nothing has changed.
bool MovePages(const PageRun& from, char* to);

}  // namespace symalloc

#include "os_memory.h"

#include <sys/mman.h>

#include "rounding.h"

namespace symalloc {

char* ReserveAddresses(int64_t nbytes) {
  void* mapped = mmap(nullptr, nbytes + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(mapped);
  char* base = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(start), kHugePage));
  if (base > start) munmap(start, base - start);
  char* end = start + nbytes + kHugePage;
  if (end > base + nbytes) munmap(base + nbytes, end - base - nbytes);
  return base;
}

void ReleaseAddresses(char* base, int64_t nbytes) { munmap(base, nbytes); }

void GiveBackPages(char* base, int64_t nbytes, bool huge) {
  madvise(base, nbytes, MADV_DONTNEED);
  // a smaller block that comes here later must not be backed by a whole huge page
  if (huge) madvise(base, nbytes, MADV_NOHUGEPAGE);
}

void AskForHugePages(char* base, int64_t nbytes) {
  int64_t start = RoundUp(reinterpret_cast<int64_t>(base), kHugePage);
  int64_t end = (reinterpret_cast<int64_t>(base) + nbytes) & ~(kHugePage - 1);
  if (end > start) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
}

}  // namespace symalloc

#include "pool/os_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>

#include "pool/sizes.h"
#include "pool/system_limits.h"

namespace symalloc {

namespace {

constexpr int kMapped = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
constexpr int kMostMaps = 16 << 10;   // Linux allows a process 65,530 mappings
constexpr int kMovesUnseen = 4 << 10;  // each may cost two mappings

int CountMaps() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return maps.eof() && count > 0 ? count : kMostMaps;
}

// True where the process can afford the mappings of one more move.
bool MayMove() {
  static std::atomic<int> left{0};
  static std::atomic<bool> may{false};
  if (left.fetch_sub(1) <= 0) {
    may = CountMaps() < kMostMaps;
    left = kMovesUnseen;
  }
  return may;
}

}  // namespace

char* ReserveAddresses(int64_t nbytes, int64_t align) {
  void* mapped = mmap(nullptr, nbytes + align, PROT_NONE, kPrivate, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(mapped);
  char* base = reinterpret_cast<char*>(RoundUp(reinterpret_cast<int64_t>(start), align));
  if (base > start) munmap(start, base - start);
  char* end = start + nbytes + align;
  if (end > base + nbytes) munmap(base + nbytes, end - base - nbytes);
  // where the system backs everything by huge pages, touching one byte would back more than was asked for
  madvise(base, nbytes, MADV_NOHUGEPAGE);
  CountAddresses(nbytes);
  return base;
}

bool MakeWritable(char* base, int64_t nbytes) { return mprotect(base, nbytes, kMapped) == 0; }

void ReleaseAddresses(char* base, int64_t nbytes) {
  munmap(base, nbytes);
  CountAddresses(-nbytes);
}

void GiveBackPages(char* base, int64_t nbytes, bool huge) {
  madvise(base, nbytes, MADV_DONTNEED);
  // a smaller block that comes here later must not be backed by a whole huge page
  if (huge) madvise(base, nbytes, MADV_NOHUGEPAGE);
}

bool MovePages(char* from, char* to, int64_t nbytes, bool huge) {
  if (!MayMove()) return false;
  int how = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;  // Linux 5.7
  if (mremap(from, nbytes, nbytes, how, to) == MAP_FAILED) {
    // it may have failed after it had unmapped what was there; nobody else can be meant to have these addresses
    if (mmap(to, nbytes, kMapped, kPrivate | MAP_FIXED, -1, 0) == MAP_FAILED) std::abort();
    return false;
  }
  if (huge) madvise(from, nbytes, MADV_NOHUGEPAGE);
  return true;
}

void AskForHugePages(char* base, int64_t nbytes) {
  int64_t start = RoundUp(reinterpret_cast<int64_t>(base), kHugePage);
  int64_t end = (reinterpret_cast<int64_t>(base) + nbytes) & ~(kHugePage - 1);
  if (end > start) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
}

}  // namespace symalloc

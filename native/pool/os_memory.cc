#include "pool/os_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
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

constexpr size_t kMostAtOnce = 64;
constexpr int kThisProcess = -10001;  // PIDFD_SELF_THREAD_GROUP of Linux 6.14

// One call for many runs; false where the system cannot do all: nothing is lost where some are given back again.
bool GiveBackAtOnce(const PageRun* runs, size_t count) {
  static std::atomic<bool> can{true};
  if (!can.load(std::memory_order_relaxed)) return false;
  iovec spans[kMostAtOnce];
  int64_t nbytes = 0;
  for (size_t i = 0; i < count; ++i) {
    spans[i] = {runs[i].base, static_cast<size_t>(runs[i].nbytes)};
    nbytes += runs[i].nbytes;
  }
  if (syscall(SYS_process_madvise, kThisProcess, spans, count, MADV_DONTNEED, 0) == nbytes) return true;
  can.store(false, std::memory_order_relaxed);
  return false;
}

// Of a process that has locked its memory (mlockall), too.
void GiveBack(const PageRun& run) {
  constexpr int kLockedToo = 24;  // MADV_DONTNEED_LOCKED of Linux 5.18
  if (madvise(run.base, run.nbytes, MADV_DONTNEED) == 0 || errno != EINVAL) return;
  if (madvise(run.base, run.nbytes, kLockedToo) == 0) return;
  munlock(run.base, run.nbytes);
  madvise(run.base, run.nbytes, MADV_DONTNEED);
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

void GiveBackPages(const PageRun* runs, size_t count) {
  for (size_t at = 0; at < count;) {
    size_t some = std::min(count - at, kMostAtOnce);
    if (some == 1 || !GiveBackAtOnce(runs + at, some)) {
      for (size_t i = at; i < at + some; ++i) GiveBack(runs[i]);
    }
    at += some;
  }
}

bool IsResident(char* page) {
  unsigned char state = 1;
  return mincore(page, 1, &state) != 0 || (state & 1) != 0;
}

bool MovePages(const PageRun& from, char* to) {
  if (!MayMove()) return false;
  int how = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;  // Linux 5.7
  if (mremap(from.base, from.nbytes, from.nbytes, how, to) == MAP_FAILED) {
    // it may have failed after it had unmapped what was there; nobody else can be meant to have these addresses
    if (mmap(to, from.nbytes, kMapped, kPrivate | MAP_FIXED, -1, 0) == MAP_FAILED) std::abort();
    return false;
  }
  return true;
}

void MakePages(const PageRun& run) {
  constexpr int kPopulateWrite = 23;      // MADV_POPULATE_WRITE of Linux 5.14
  constexpr int64_t kMostMade = 1 << 20;  // bytes at a time: other threads' moves wait for it
  for (int64_t at = 0; at < run.nbytes; at += kMostMade) {
    if (madvise(run.base + at, std::min(run.nbytes - at, kMostMade), kPopulateWrite) != 0) return;
  }
}

void AskForHugePages(char* base, int64_t nbytes) {
  int64_t start = RoundUp(reinterpret_cast<int64_t>(base), kHugePage);
  int64_t end = (reinterpret_cast<int64_t>(base) + nbytes) & ~(kHugePage - 1);
  if (end > start) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
}

void ForgoHugePages(char* base, int64_t nbytes) { madvise(base, nbytes, MADV_NOHUGEPAGE); }

}  // namespace symalloc

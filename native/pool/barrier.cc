#include "pool/barrier.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

namespace symalloc {

namespace {

long Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

bool Register() {
#if defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
  // it knows nothing of membarrier; on other machines nothing makes up for a membarrier that is denied later
  return false;
#else
  return Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
#endif
}

// Takes a page in use away from the process: x86-64 has to interrupt every processor that runs one of its threads, and
// an interrupt is a full barrier (as the FlushProcessWriteBuffers of .NET does without membarrier).
void TakePageAway() {
  static std::mutex mutex;
  static const int64_t size = sysconf(_SC_PAGESIZE);
  std::lock_guard<std::mutex> lock(mutex);
  static void* page = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || mprotect(page, size, PROT_READ | PROT_WRITE) != 0) std::abort();
  ++*static_cast<volatile char*>(page);  // or it would be in no processor's tables
  if (mprotect(page, size, PROT_NONE) != 0) std::abort();
}

}  // namespace

bool HasHeavyBarrier() {
  static const bool registered = Register();
  return registered;
}

void HeavyBarrier() {
  if (!HasHeavyBarrier() || Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  // a forked process may have to register by itself; a filter of system calls may have come since
  if (Register() && Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  TakePageAway();
}

void Section::AwaitLeft() const {
  while (inside_.load(std::memory_order_seq_cst)) sched_yield();
}

}  // namespace symalloc

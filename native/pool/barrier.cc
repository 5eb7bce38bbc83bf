#include "pool/barrier.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace symalloc {

namespace {

long Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

bool Register() {
#ifdef __SANITIZE_THREAD__
  return false;  // it knows nothing of membarrier
#else
  return Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
#endif
}

}  // namespace

bool HasHeavyBarrier() {
  static const bool registered = Register();
  return registered;
}

void HeavyBarrier() {
  if (!HasHeavyBarrier()) return;
  // a forked process may have to register by itself
  while (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) Register();
}

void Section::AwaitLeft() const {
  while (inside_.load(std::memory_order_seq_cst)) sched_yield();
}

}  // namespace symalloc

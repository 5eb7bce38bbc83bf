// Naming the block whose protected pages a program runs into.
#include "pool/guard.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace symalloc {

namespace {

constexpr int kMost = 256;
std::atomic<Guard*> watched[kMost];
struct sigaction previous;

const char* Verb(void* context) {
#if defined(__x86_64__)
  bool write = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
  return write ? "written" : "read";
#else
  (void)context;
  return "touched";
#endif
}

// The thread that faults holds no mutex of a guard: those are held in this library alone.
void Name(const char* address, const char* verb) {
  static char text[1024];
  for (auto& slot : watched) {
    Guard* guard = slot.load();
    if (guard == nullptr) continue;
    std::lock_guard<std::mutex> lock(*guard->mutex());
    if (!guard->Describe(address, verb, text, sizeof text)) continue;
    ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
    (void)written;
    return;
  }
}

// The previous handler of the signal is called next; by default the process ends.
void Handle(int signal, siginfo_t* info, void* context) {
  if (info->si_code > 0) Name(static_cast<const char*>(info->si_addr), Verb(context));
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    sigaction(signal, &previous, nullptr);  // the instruction is tried again, and faults again
  }
}

void Install() {
  struct sigaction action {};
  action.sa_sigaction = Handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous);
}

}  // namespace

void WatchFaults(Guard* guard) {
  static std::once_flag once;
  std::call_once(once, Install);
  for (auto& slot : watched) {
    Guard* free = nullptr;
    if (slot.compare_exchange_strong(free, guard)) return;
  }
}

void UnwatchFaults(Guard* guard) {
  for (auto& slot : watched) {
    Guard* mine = guard;
    if (slot.compare_exchange_strong(mine, nullptr)) return;
  }
}

}  // namespace symalloc

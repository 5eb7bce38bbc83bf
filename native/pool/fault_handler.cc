// Naming the block whose protected pages a program runs into.
// Whatever the program was doing: nothing here takes a lock, allocates, or reads memory that may be protected.
#include "pool/fault_handler.h"

#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "pool/guarded_blocks.h"

namespace symalloc {

namespace {

struct sigaction previous;  // is called behind Handle
struct sigaction above;     // is put back by HandleFirst
std::atomic<bool> stepped_aside{false};
std::atomic<const char*> last_named{nullptr};
std::atomic<bool> ending{false};
constexpr timeval kLongestEnd{0, 700'000};

// A line of text that grows on the stack.
class Line {
 public:
  Line& operator<<(const char* text) {
    size_t size = std::min(std::strlen(text), sizeof text_ - size_);
    std::memcpy(text_ + size_, text, size);
    size_ += size;
    return *this;
  }

  Line& operator<<(int64_t number) {
    char digits[24];
    char* at = digits + sizeof digits - 1;
    *at = '\0';
    uint64_t left = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    do {
      *--at = static_cast<char>('0' + left % 10);
      left /= 10;
    } while (left > 0);
    if (number < 0) *--at = '-';
    return *this << at;
  }

  // In one piece, so that lines of several threads stay whole.
  void Write() const {
    ssize_t written = write(STDERR_FILENO, text_, size_);
    (void)written;
  }

 private:
  char text_[kShownTag + 256];
  size_t size_ = 0;
};

// The first byte of [from, to) that is no canary, as far as it can be read; `to` where all are.
const char* FirstDamagedReadable(const char* from, const char* to) {
  char copy[256];
  while (from < to) {
    iovec here{copy, std::min(sizeof copy, static_cast<size_t>(to - from))};
    iovec there{const_cast<char*>(from), here.iov_len};
    ssize_t count = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    if (count <= 0) return to;
    for (ssize_t i = 0; i < count; ++i) {
      if (static_cast<unsigned char>(copy[i]) != kCanary) return from + i;
    }
    from += count;
  }
  return to;
}

void Describe(const char* address, const char* verb, const GuardedBlock& block, const char* tag, Line* line) {
  const char* behind = block.begin + block.nbytes;
  const char* quote = *tag == '\0' ? "" : "`";
  *line << "symalloc: " << quote << (*tag == '\0' ? "a block" : tag) << quote << " of " << block.nbytes << " bytes is ";
  if (block.freed) {
    *line << verb << " after it was freed: byte " << address - block.begin << " of it\n";
  } else if (address < block.begin) {
    *line << "underrun: byte " << address - block.begin << ", in front of it, is " << verb << "\n";
  } else if (address < behind) {
    *line << verb << " while its pages are protected: byte " << address - block.begin << " of it\n";
  } else {
    // where the canaries between are overwritten, it began there
    address = std::min(address, FirstDamagedReadable(behind, block.edge));
    *line << "overrun: byte " << address - behind << " past its end is " << verb << "\n";
  }
}

void EndBySegv(int) {
  struct sigaction by_default {};
  sigemptyset(&by_default.sa_mask);
  sigaction(SIGSEGV, &by_default, nullptr);
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
  raise(SIGSEGV);
}

// The process ends after kLongestEnd, whatever the other handlers of the fault do: TVM's collects a backtrace, which
// takes seconds on a busy machine.
void EndSoon() {
  if (ending.exchange(true)) return;
  struct sigaction end {};
  end.sa_handler = EndBySegv;
  sigemptyset(&end.sa_mask);
  sigaction(SIGALRM, &end, nullptr);
  itimerval once{{0, 0}, kLongestEnd};
  setitimer(ITIMER_REAL, &once, nullptr);
}

void Name(const char* address, const char* verb) {
  GuardedBlock block;
  char tag[kShownTag];
  if (address == nullptr || address == last_named.load(std::memory_order_relaxed)) return;
  if (!FindGuardedBlock(address, &block, tag)) return;
  Line line;
  Describe(address, verb, block, tag, &line);
  line.Write();
  last_named.store(address, std::memory_order_relaxed);
  EndSoon();
}

#if defined(__x86_64__)
const char* Verb(const void* context) {
  return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? "written" : "read";
}

// Where the thread faulted last; nullptr where it did not.  A handler that was called before this one may have sent
// the signal on, which tells no address any more.
const char* LastFault(const void* context) {
  constexpr int kPageFault = 14;
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return registers[REG_TRAPNO] == kPageFault ? reinterpret_cast<const char*>(registers[REG_CR2]) : nullptr;
}
#else
const char* Verb(const void*) { return "touched"; }
const char* LastFault(const void*) { return nullptr; }
#endif

bool Same(const struct sigaction& one, const struct sigaction& other) {
  bool full = one.sa_flags & SA_SIGINFO;
  if (full != static_cast<bool>(other.sa_flags & SA_SIGINFO)) return false;
  return full ? one.sa_sigaction == other.sa_sigaction : one.sa_handler == other.sa_handler;
}

// True where the signal calls a function.
bool Calls(const struct sigaction& action) {
  return action.sa_flags & SA_SIGINFO || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

// True where a program has sent the signal, and no fault.
bool Sent(const siginfo_t* info) { return info->si_code <= 0; }

const char* FaultAt(const siginfo_t* info, const void* context) {
  return Sent(info) ? LastFault(context) : static_cast<const char*>(info->si_addr);
}

// The previous handler of the signal is called next; by default the process ends.
void Handle(int signal, siginfo_t* info, void* context) {
  int error = errno;
  bool sent = Sent(info);
  Name(FaultAt(info, context), Verb(context));
  if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(signal, info, context);
  } else if (Calls(previous)) {
    previous.sa_handler(signal);
  } else if (!sent || previous.sa_handler == SIG_DFL) {
    // the instruction is tried again, and faults again; a signal that was sent is sent again
    struct sigaction by_default {};
    sigemptyset(&by_default.sa_mask);
    sigaction(signal, &by_default, nullptr);
    if (sent) raise(signal);
  }
  errno = error;
}

// Installed over a handler that was put on top of `Handle`.  That one may take long, or fault itself where it looks at
// threads that run, before it hands the fault on.  So the block is named first, and once; then all is as it was before,
// and the instruction is tried again.
void HandleFirst(int signal, siginfo_t* info, void* context) {
  if (stepped_aside.exchange(true)) return Handle(signal, info, context);
  int error = errno;
  const char* address = FaultAt(info, context);
  Name(address, Verb(context));
  sigaction(SIGSEGV, &above, nullptr);
  if (Sent(info)) raise(signal);
  errno = error;
}

struct sigaction Action(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return action;
}

std::atomic<bool> installed{false};
bool first = false;  // HandleFirst is installed, or was when this was looked at last; guarded by `installing`
std::atomic_flag installing = ATOMIC_FLAG_INIT;  // whoever finds it set goes on: a fork may leave it so

}  // namespace

void WatchFaults() {
  static const struct sigaction ours = Action(Handle), ours_first = Action(HandleFirst);
  struct sigaction current {};
  sigaction(SIGSEGV, nullptr, &current);
  if (Same(current, ours_first) || installing.test_and_set(std::memory_order_acquire)) return;
  bool before = installed.load(std::memory_order_acquire);
  if (before && Same(current, ours)) {
    first = false;
  } else if (!before || !Calls(current) || Same(current, previous)) {
    if (!before || !Calls(current)) previous = current;  // known before the first fault can come
    first = false;
    sigaction(SIGSEGV, &ours, nullptr);
    installed.store(true, std::memory_order_release);
  } else if (!first && !stepped_aside.load(std::memory_order_relaxed)) {
    // put on top of Handle, and gone when Handle is back; of one put on top of HandleFirst that would not be known
    above = current;
    first = true;
    sigaction(SIGSEGV, &ours_first, nullptr);
  }
  installing.clear(std::memory_order_release);
}

}  // namespace symalloc

// Stands in front of the C library and counts what TVM's CPUDeviceAPI takes and gives back: preload it.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace {
std::mutex mutex;
std::uint64_t taken = 0, live = 0, most = 0;
thread_local bool counting = false;  // the table takes memory itself

std::unordered_map<void*, std::size_t>& Blocks() {
  static auto* blocks = new std::unordered_map<void*, std::size_t>;
  return *blocks;
}
}  // namespace

extern "C" {

int posix_memalign(void** block, std::size_t alignment, std::size_t nbytes) {
  static const auto next =
      reinterpret_cast<int (*)(void**, std::size_t, std::size_t)>(dlsym(RTLD_NEXT, "posix_memalign"));
  const int failed = next(block, alignment, nbytes);
  if (!failed && !counting) {
    counting = true;
    std::lock_guard<std::mutex> lock(mutex);
    Blocks()[*block] = nbytes;
    taken += nbytes;
    live += nbytes;
    if (live > most) most = live;
    counting = false;
  }
  return failed;
}

void free(void* block) {
  static const auto next = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_NEXT, "free"));
  if (block != nullptr && !counting && reinterpret_cast<std::uintptr_t>(block) % 64 == 0) {
    counting = true;
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = Blocks().find(block);
    if (found != Blocks().end()) {
      live -= found->second;
      Blocks().erase(found);
    }
    counting = false;
  }
  next(block);
}

// The bytes that were taken since the last call of this function.
std::uint64_t symalloc_taken() {
  std::lock_guard<std::mutex> lock(mutex);
  const std::uint64_t before = taken;
  taken = 0;
  return before;
}

// The bytes that are held, and the most that were since the last call of `symalloc_most`.
std::uint64_t symalloc_live() { return live; }

std::uint64_t symalloc_most() {
  std::lock_guard<std::mutex> lock(mutex);
  const std::uint64_t before = most;
  most = live;
  return before;
}
}

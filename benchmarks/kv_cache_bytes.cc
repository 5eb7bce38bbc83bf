// Stands in front of the C library and counts what TVM's CPUDeviceAPI takes: preload it.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace {
std::atomic<std::uint64_t> taken{0};
}  // namespace

extern "C" {

int posix_memalign(void** block, std::size_t alignment, std::size_t nbytes) {
  static const auto next =
      reinterpret_cast<int (*)(void**, std::size_t, std::size_t)>(dlsym(RTLD_NEXT, "posix_memalign"));
  taken.fetch_add(nbytes);
  return next(block, alignment, nbytes);
}

// The bytes that were taken since the last call of this function.
std::uint64_t symalloc_taken() { return taken.exchange(0); }
}

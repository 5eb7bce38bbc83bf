// Stands in front of TVM's workspace pool and counts what kernels hold: load with RTLD_GLOBAL before TVM.
#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {
constexpr std::uint64_t kHeader = 64;
std::atomic<std::uint64_t> held{0}, most{0};
}  // namespace

extern "C" {

void* TVMBackendAllocWorkspace(int, int, std::uint64_t nbytes, int, int) {
  std::uint64_t now = held.fetch_add(nbytes) + nbytes, before = most.load();
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
  char* block = static_cast<char*>(std::aligned_alloc(kHeader, (nbytes + 2 * kHeader - 1) / kHeader * kHeader));
  if (block == nullptr) return nullptr;
  *reinterpret_cast<std::uint64_t*>(block) = nbytes;
  return block + kHeader;
}

int TVMBackendFreeWorkspace(int, int, void* pointer) {
  char* block = static_cast<char*>(pointer) - kHeader;
  held.fetch_sub(*reinterpret_cast<std::uint64_t*>(block));
  std::free(block);
  return 0;
}

// The most bytes that kernels held at one moment since the last call of this function.
std::uint64_t symalloc_most_workspace() { return most.exchange(held.load()); }
}

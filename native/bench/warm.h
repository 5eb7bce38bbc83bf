// Memory that the host of a virtual machine has given it.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace symalloc {

// Writes as many huge pages and gives them back.  A virtual machine may return free memory to its host (page reporting),
// 2 MiB at a time: whoever takes huge pages first then waits for the host, up to five times as long, and whether that
// is so depends on what ran seconds ago.
inline void Warm(int64_t nbytes) {
  void* memory = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, nbytes, MADV_HUGEPAGE);
  auto* bytes = static_cast<volatile char*>(memory);
  for (int64_t at = 0; at < nbytes; at += 4096) bytes[at] = 1;
  munmap(memory, nbytes);
}

}  // namespace symalloc

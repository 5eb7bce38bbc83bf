// Threads that allocate, name and free blocks of pools in guard mode, while others look blocks up as the handler of
// faults does, and pools come and go.  For sanitizers.  Exit status 1 where a block is not found, or found wrongly.
// Usage: symalloc_guard [threads] [operations of each]
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pool/guard.h"
#include "pool/guarded_blocks.h"

namespace {

std::atomic<int64_t> faults{0};
std::atomic<const char*> last{nullptr};

// What the handler would say of a block of this thread.
void Check(const char* block, int64_t nbytes, const std::string& tag, bool freed) {
  symalloc::GuardedBlock found;
  char text[symalloc::kShownTag];
  bool right = symalloc::FindGuardedBlock(block + nbytes / 2, &found, text) && found.begin == block &&
               found.nbytes == nbytes && found.freed == freed && tag == text;
  if (!right) ++faults;
}

void Work(symalloc::Guard* guard, int64_t operations, unsigned seed) {
  std::mt19937 random(seed);
  for (int64_t i = 0; i < operations; ++i) {
    int64_t nbytes = 1 + random() % (i % 50 == 0 ? 3'000'000 : 9'000);
    auto* block = static_cast<char*>(guard->Alloc(nbytes, random() % 4 == 0 ? 8192 : 64));
    std::string tag = "block " + std::to_string(seed) + " " + std::to_string(i);
    guard->Name(block, tag);
    if (block[0] != '\xff' || block[nbytes - 1] != '\xff') ++faults;
    std::memset(block, 1, nbytes);
    last = block;
    Check(block, nbytes, tag, false);
    int64_t backed;
    if (!guard->Free(block, &backed).empty()) ++faults;
    if (i % 8 == 0) Check(block, nbytes, tag, true);
  }
}

void Look(const std::atomic<bool>* stop) {
  while (!*stop) {
    symalloc::GuardedBlock found;
    char text[symalloc::kShownTag];
    const char* address = last;
    if (!symalloc::FindGuardedBlock(address, &found, text)) continue;
    if (address < found.mapped || address >= found.end || std::strlen(text) >= symalloc::kShownTag) ++faults;
  }
}

}  // namespace

int main(int count, char** arguments) {
  int threads = count > 1 ? std::atoi(arguments[1]) : 4;
  int64_t operations = count > 2 ? std::atoll(arguments[2]) : 500;
  std::atomic<bool> stop{false};
  std::thread looking(Look, &stop);
  auto kept = std::make_unique<symalloc::Guard>();
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      for (int round = 0; round < 4; ++round) {
        symalloc::Guard own;
        Work(i % 2 ? &own : kept.get(), operations / 4, static_cast<unsigned>(4 * i + round));
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  stop = true;
  looking.join();
  std::printf("%lld faults\n", static_cast<long long>(faults.load()));
  return faults == 0 ? 0 : 1;
}

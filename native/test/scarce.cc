// A pool while the memory of its own books runs out: one request of an operation for memory in two fails, or all from
// one on.  Nothing is lost, whether the operation fails or not, and all goes back in the end.  For sanitizers.  Exit
// status 1 where a count is wrong.  Usage: symalloc_scarce [programs of 400 operations]
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <utility>

#include "pool/pool.h"

namespace {

int64_t fails_in = -1;  // requests from now; -1: none
bool goes_on = false;   // failing

bool Fails() {
  if (fails_in < 0 || --fails_in >= 0) return false;
  fails_in = goes_on ? 0 : -1;
  return true;
}

}  // namespace

void* operator new(size_t nbytes) {
  void* memory = Fails() ? nullptr : std::malloc(nbytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using symalloc::Options;
using symalloc::Pool;

constexpr char kTag[] = "a tag that is longer than what a string holds within itself";
constexpr int64_t kMiB = 1 << 20;

int64_t failed = 0;

Options RandomOptions(std::mt19937_64* random) {
  Options options;
  options.limit = (*random)() % 3 ? 64 * kMiB : 1024 * kMiB;
  if ((*random)() % 3 == 0) options.bin_capacity = 0;
  options.guard = (*random)() % 6 == 0;
  if ((*random)() % 3 == 0) options.soft_numerator = -1, options.soft_denominator = 1;
  return options;
}

class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed), pool_(RandomOptions(&random_)), session_(pool_.OpenSession("s", -1)) {
    goes_on = random_() % 2;
  }

  // False where a count is wrong.
  bool Run() {
    for (int i = 0; i < 400; ++i) {
      try {
        Step(random_() % 100);
      } catch (const std::bad_alloc&) {
        ++failed;
      } catch (const symalloc::OutOfMemory&) {
      }
      fails_in = -1;
      if (pool_.statistics().live != live_ || pool_.ReadSession(session_.get()).live != charged_) return false;
    }
    if (within_) pool_.LeaveSession(session_.get());
    for (auto& [block, held] : blocks_) pool_.Free(block, held.first);
    pool_.Trim();
    symalloc::Statistics s = pool_.statistics();
    return s.live == 0 && s.used == 0 && s.reserved == 0;
  }

 private:
  void Step(uint64_t dice) {
    fails_in = random_() % 2 ? -1 : static_cast<int64_t>(random_() % 8);
    if (dice < 45) return Allocate();
    if (dice < 85) return Free();
    if (dice < 88) return static_cast<void>(pool_.Trim());
    if (dice < 91) return TurnScope();
    if (dice < 94) return TurnSession();
    if (dice < 96) return pool_.tracker().StartRecording(50);
    if (dice < 97) return pool_.tracker().StopRecording();
    if (!blocks_.empty()) pool_.Tag(blocks_.begin()->first, blocks_.begin()->second.first, kTag);
  }

  void Allocate() {
    int64_t nbytes = 1 + static_cast<int64_t>(random_() % (2 << random_() % 22));
    void* block = pool_.Alloc(nbytes, 64, random_() % 3 ? "" : kTag);
    fails_in = -1;
    blocks_[block] = {nbytes, within_};
    Count(blocks_[block], 1);
  }

  void Free() {
    if (blocks_.empty()) return;
    auto chosen = std::next(blocks_.begin(), static_cast<int64_t>(random_() % blocks_.size()));
    auto [block, held] = *chosen;
    blocks_.erase(chosen);
    Count(held, -1);
    pool_.Free(block, held.first);
  }

  void Count(const std::pair<int64_t, bool>& held, int sign) {
    live_ += sign * held.first;
    if (held.second) charged_ += sign * held.first;
  }

  void TurnScope() {
    if (scope_ < 0) {
      scope_ = pool_.OpenScope();
    } else {
      pool_.CloseScope(std::exchange(scope_, -1));
    }
  }

  void TurnSession() {
    if (!within_) {
      pool_.EnterSession(session_);
    } else {
      fails_in = -1;
      pool_.LeaveSession(session_.get());
    }
    within_ = !within_;
  }

  std::mt19937_64 random_;
  Pool pool_;
  std::shared_ptr<symalloc::Session> session_;
  std::map<void*, std::pair<int64_t, bool>> blocks_;  // bytes, and whether the session is charged
  int64_t live_ = 0, charged_ = 0, scope_ = -1;
  bool within_ = false;
};

}  // namespace

int main(int count, char** arguments) {
  int programs = count > 1 ? std::atoi(arguments[1]) : 200, wrong = 0;
  for (int seed = 0; seed < programs; ++seed) wrong += !Program(seed).Run();
  std::printf("%d of %d programs are wrong, %lld operations had no memory\n", wrong, programs,
              static_cast<long long>(failed));
  return wrong == 0 && failed > 0 ? 0 : 1;
}

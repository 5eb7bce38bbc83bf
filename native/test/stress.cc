// Threads that allocate, tag, wait for memory, stamp, hand over, check and free blocks of one pool at random, while it is
// trimmed, its limit is met, its callbacks are called and the process forks; then, with a third as many operations, within
// sessions while pages decay, another thread opens and closes scopes, records, adds and removes callbacks, and limits
// move; then with blocks that have slack, until memory gets scarce.  Exit status 1 where a stamp is lost, a block is handed
// out twice, a block can be freed twice, a forked process cannot go on, or the statistics at rest are not exact.
// Usage: symalloc_stress [threads] [operations of each] [seed]
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pool/pool.h"

using symalloc::Options;
using symalloc::OutOfMemory;
using symalloc::Pool;

namespace {

constexpr int kMailboxes = 256;
constexpr int kKept = 64;  // blocks that a thread holds
constexpr int64_t kKiB = 1024;
#ifdef __SANITIZE_THREAD__
constexpr double kDecay = 0;  // a thread after a fork is more than ThreadSanitizer can
#else
constexpr double kDecay = 0.002;  // seconds
#endif

struct Block {
  char* data;
  int64_t nbytes;
  uint64_t stamp;
};

std::atomic<Block*> mailboxes[kMailboxes];
std::atomic<bool> medium{false};  // only blocks of sizes that may have slack
std::atomic<int64_t> faults{0};
std::atomic<int64_t> refused{0};
std::atomic<uint64_t> next_stamp{1};
std::atomic<int64_t> asked{0};    // callbacks for want of memory
std::atomic<int64_t> watched{0};  // callbacks at watermarks
std::mutex ending;                // held where a thread says that it ends, and while the process forks
int64_t working = 0;              // threads that have not said so
using SessionRef = std::shared_ptr<symalloc::Session>;
std::vector<SessionRef> sessions;

// The stamp stands at the front and at the end of the block.
void Stamp(const Block& block) {
  std::memcpy(block.data, &block.stamp, sizeof block.stamp);
  std::memcpy(block.data + block.nbytes - sizeof block.stamp, &block.stamp, sizeof block.stamp);
}

bool Stamped(const Block& block) {
  return std::memcmp(block.data, &block.stamp, sizeof block.stamp) == 0 &&
         std::memcmp(block.data + block.nbytes - sizeof block.stamp, &block.stamp, sizeof block.stamp) == 0;
}

void Drop(Pool* pool, Block* block) {
  if (!Stamped(*block)) ++faults;
  pool->Free(block->data, block->nbytes);
  delete block;
}

Block* Make(Pool* pool, std::mt19937_64* random) {
  // 16 bytes to 1 MiB, small ones more often
  int64_t most = int64_t{16} << ((*random)() % 17);
  int64_t nbytes = 16 + static_cast<int64_t>((*random)() % most);
  if (medium) nbytes = 16 * kKiB + static_cast<int64_t>((*random)() % (240 * kKiB));
  int64_t align = (*random)() % 8 ? 64 : 4096;
  try {
    symalloc::Patience patience{(*random)() % 32 ? 0 : 100'000, false};
    void* data = patience.ns == 0 ? pool->Alloc(nbytes, align)
                                  : pool->AllocWaiting(nbytes, align, (*random)() % 2 ? "a" : "", patience);
    if (reinterpret_cast<uint64_t>(data) % align != 0) ++faults;
    if (!sessions.empty() && (*random)() % 7 == 0) pool->Tag(data, nbytes, "tag" + std::to_string((*random)() % 5));
    auto* block = new Block{static_cast<char*>(data), nbytes, next_stamp.fetch_add(1)};
    Stamp(*block);
    return block;
  } catch (const OutOfMemory&) {
    ++refused;
    return nullptr;
  }
}

// Enters a session, or the next; leaves the last one.
void Change(Pool* pool, SessionRef* session, uint64_t next) {
  if (*session != nullptr) pool->LeaveSession(session->get());
  *session = next < sessions.size() ? sessions[next] : nullptr;
  if (*session != nullptr) pool->EnterSession(*session);
}

void Work(Pool* pool, int64_t operations, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Block*> kept;
  SessionRef session;
  for (int64_t i = 0; i < operations; ++i) {
    if (i % 50'000 == 49'999) pool->Trim();
    if (i % 50'000 == 24'999) pool->Trim([] { return false; });  // a part
    if (!sessions.empty() && i % 100 == 0) Change(pool, &session, random() % (2 * sessions.size()));
    if (kept.size() == kKept || (!kept.empty() && random() % 2)) {
      std::swap(kept[random() % kept.size()], kept.back());
      Block* block = kept.back();
      kept.pop_back();
      // one in four is left for another thread; what lay there is this thread's to free
      if (random() % 4 == 0) block = mailboxes[random() % kMailboxes].exchange(block);
      if (block != nullptr) Drop(pool, block);
    } else if (Block* block = Make(pool, &random)) {
      kept.push_back(block);
    }
  }
  for (Block* block : kept) Drop(pool, block);
  if (session != nullptr) Change(pool, &session, sessions.size());
  std::lock_guard<std::mutex> lock(ending);
  --working;
}

// Frees the blocks in the mailboxes, for want of memory; false where there were none.
bool EmptyMailboxes(Pool* pool) {
  ++asked;
  bool any = false;
  for (auto& mailbox : mailboxes) {
    if (Block* block = mailbox.exchange(nullptr)) {
      Drop(pool, block);
      any = true;
    }
  }
  return any;
}

void Watermark(Pool* pool, int64_t limit) {
  pool->SetOnOom([pool](int64_t, int64_t, const std::string&) { return EmptyMailboxes(pool); }, 2);
  for (bool high : {true, false}) {
    symalloc::Watermark watermark{};
    watermark.high = high;
    watermark.at = high ? limit / 4 * 3 : limit / 2;
    watermark.rearm = high ? limit / 2 : limit / 4 * 3;
    watermark.callback = [pool, high](int64_t) {
      ++watched;
      if (high) pool->Trim();
    };
    pool->AddWatermark(std::move(watermark));
  }
}

void Touch(Pool* pool) {
  try {
    pool->Free(pool->Alloc(100, 64), 100);
  } catch (const OutOfMemory&) {
    ++refused;
  }
}

// Everything that looks at a pool, or changes what may be had of it.
void Observe(Pool* pool, int64_t limit, const std::atomic<bool>* stop) {
  for (int i = 0; !*stop; ++i) {
    int64_t scope = pool->OpenScope();
    int64_t watermark = pool->AddWatermark({0, true, limit / 2, limit / 4, [pool](int64_t) { Touch(pool); }});
    pool->tracker().StartRecording(1 + i % 1000);
    int64_t call = pool->tracker().BeginCall();
    Touch(pool);
    pool->tracker().EndCall(call);
    pool->tracker().AllTagged();
    pool->Layout();
    if (i % 10 == 0) pool->ResetPeak();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool->tracker().StopRecording();
    pool->tracker().Recorded();
    pool->ReadScope(scope);
    pool->CloseScope(scope);
    pool->SetLimit((2 + i % 3) * limit / 4);
    pool->SetSessionLimit(sessions[1].get(), (1 + i % 2) * limit / 8);
    pool->HeldBy(sessions[0].get());
    pool->ReadSession(sessions[1].get());
    pool->RemoveWatermark(watermark);
  }
}

// A copy of the process uses its copy of the pool, whatever the other threads were doing.
void Fork(Pool* pool) {
  pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends it where it hangs
    pool->ClearCallbacks();
    pool->SetLimit(-1);
    for (int64_t nbytes : {100, 100'000, 3'000'000}) pool->Free(pool->Alloc(nbytes, 64), nbytes);
    pool->Trim();
    _exit(0);
  }
  int status = 1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++faults;
}

// A large block is seen to be free already, whether its thread caches it or the free list has it.
void FreeTwice(Pool* pool) {
  constexpr int64_t kLarge = 1 << 20;
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(pool->Alloc(kLarge, 64));
  for (int freed : {0, 2}) {
    pool->Free(blocks[freed], kLarge);
    try {
      pool->Free(blocks[0], kLarge);
      ++faults;
    } catch (const symalloc::BadFree&) {
    }
  }
  pool->Free(blocks[1], kLarge);
}

int64_t Number(int count, char** arguments, int index, int64_t otherwise) {
  return count > index ? std::atoll(arguments[index]) : otherwise;
}

// True where the pool is left as it was.  `plenty`: memory gets scarce only after a while, and blocks have slack before.
bool Run(const Options& options, int64_t threads, int64_t operations, uint64_t seed, bool in_sessions, bool plenty) {
  Pool pool(options);
  if (plenty) pool.SetLimit(32 * options.limit);
  medium = plenty;
  FreeTwice(&pool);
  Watermark(&pool, options.limit);
  if (in_sessions) {
    sessions.push_back(pool.OpenSession("outer", options.limit / 2));
    pool.EnterSession(sessions[0]);
    sessions.push_back(pool.OpenSession("inner", options.limit / 8));
    pool.LeaveSession(sessions[0].get());
  }
  std::vector<std::thread> workers;
  std::atomic<bool> stop{false};
  std::thread observer;
  if (in_sessions) observer = std::thread(Observe, &pool, options.limit, &stop);
  working = threads;
  for (int64_t i = 0; i < threads; ++i) workers.emplace_back(Work, &pool, operations, seed * 1000 + i);
  bool all = true;
  for (int looks = 0; all; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (looks == 5) pool.SetLimit(options.limit);
    std::lock_guard<std::mutex> lock(ending);
    all = working == threads;
    if (all) Fork(&pool);  // to ThreadSanitizer one that has ended is a leak of the forked process
  }
  for (std::thread& worker : workers) worker.join();
  stop = true;
  if (in_sessions) {
    observer.join();
    std::thread([&] { pool.EnterSession(sessions[0]); }).join();  // it leaves when it ends
  }
  pool.ClearCallbacks();
  for (auto& mailbox : mailboxes) {
    if (Block* block = mailbox.exchange(nullptr)) Drop(&pool, block);
  }
  pool.Trim();
  symalloc::Statistics s = pool.statistics();
  bool exact = s.live == 0 && s.used == 0 && s.reserved == 0 && s.allocs == s.frees && !pool.tracker().on();
  for (const SessionRef& session : sessions) {
    auto counted = pool.ReadSession(session.get());
    exact = exact && counted.live == 0 && counted.allocs == counted.frees && counted.allocs > 0;
  }
  std::printf("%lld callbacks for want of memory, %lld at watermarks\n", static_cast<long long>(asked.load()),
              static_cast<long long>(watched.load()));
  std::printf("%lld operations, %lld refused at the limit, %lld faults; live %lld, used %lld, reserved %lld\n",
              static_cast<long long>(s.allocs + s.frees), static_cast<long long>(refused.load()),
              static_cast<long long>(faults.load()), static_cast<long long>(s.live),
              static_cast<long long>(s.used), static_cast<long long>(s.reserved));
  sessions.clear();
  return exact;
}

}  // namespace

int main(int count, char** arguments) {
  int64_t threads = Number(count, arguments, 1, 8);
  int64_t operations = Number(count, arguments, 2, 100'000);
  int64_t seed = Number(count, arguments, 3, 1);
  Options options;
  options.limit = threads * (int64_t{3} << 20);
  bool exact = Run(options, threads, operations, seed, false, false);
  options.decay = kDecay;
  exact = Run(options, threads, operations / 3, seed + 1, true, false) && exact;
  options.decay = 0;
  exact = Run(options, threads, operations / 3, seed + 2, false, true) && exact;
  return faults.load() == 0 && exact ? 0 : 1;
}

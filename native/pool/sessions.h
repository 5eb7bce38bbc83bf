// Budgets within a pool.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pool/options.h"
#include "pool/out_of_memory_report.h"
#include "pool/sizes.h"

namespace symalloc {

// A session at one moment.  Sizes are bytes asked for.
struct SessionStatistics {
  int64_t limit;  // -1: none
  int64_t live = 0, peak_live = 0;
  int64_t allocs = 0, frees = 0;
  int64_t refused = 0;  // allocations by threads in it
};

// What is allocated by threads that are in it.  Guarded by the pool's mutex.
struct Session : SessionStatistics {
  // Bytes of a block that count for the limit.
  int64_t Takes(int64_t nbytes) const { return page == 0 ? nbytes : RoundUp(Rounded(nbytes), page); }

  const std::string name;
  const std::shared_ptr<Session> parent;  // charged, too; nullptr: none
  const int64_t page;                     // blocks begin on pages of so many bytes, and take whole ones; 0: as asked for
  int64_t taken = 0;                      // by blocks, those that are yet to be had among them
};

// The sessions that an allocation is charged to, each once.
using Charge = std::vector<std::shared_ptr<Session>>;
using ChargeRef = std::shared_ptr<const Charge>;

// An allocation is beyond the budget of a session.
struct OverBudget : OutOfMemory {
  OverBudget(const std::string& text, const Session* session) : OutOfMemory(text), session(session) {}
  const Session* session;
};

// All but what concerns the calling thread alone is guarded by the pool's mutex.
class Sessions {
 public:
  // The calling thread enters or leaves a session of the pool `pool_id`; false where it is not in it.
  static void Enter(uint64_t pool_id, std::shared_ptr<Session> session);
  static bool Leave(uint64_t pool_id, const Session* session);

  // What the calling thread allocates is charged to; nullptr: to none.
  static ChargeRef Current(uint64_t pool_id);

  // The innermost session that the calling thread is in, or nullptr.
  static std::shared_ptr<Session> Innermost(uint64_t pool_id);

  void CountEntered(int64_t change) { entered_ += change; }

  // For a forked process, which has the calling thread only.
  void Inherit(uint64_t pool_id);

  // False where nothing is charged, and nobody would be.
  bool any() const { return entered_ > 0 || !blocks_.empty(); }

  // The session whose budget has no room for `nbytes` more, or nullptr.
  static const Session* Lacking(const Charge& charge, int64_t nbytes);

  // Charges a block that is yet to be had; throws OverBudget.  `Add` or `Refund` must follow.
  void Reserve(const Charge& charge, int64_t nbytes) const;
  void Add(const void* block, const ChargeRef& charge, int64_t nbytes, std::string_view tag);
  static void Refund(const Charge& charge, int64_t nbytes);

  // The block is to be freed; what it was charged to, nullptr: to none.  `Refund` must follow once it is.
  ChargeRef Remove(const void* block);
  void Tag(const void* block, std::string_view tag);

  // Bytes and blocks of a session by tag, "" for those without one.
  std::map<std::string, Holding> Held(const Session* session) const;

 private:
  struct Charged {
    ChargeRef charge;
    int64_t nbytes;
    std::string tag;
  };

  int64_t entered_ = 0;  // threads, as often as each has entered
  std::unordered_map<const void*, Charged> blocks_;
};

}  // namespace symalloc

// Allocations that wait for memory, and what is charged to sessions.
#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "pool/pool.h"
#include "pool/system_limits.h"

namespace symalloc {

namespace {

using Clock = Waiter::Clock;

constexpr std::chrono::milliseconds kSlice{50};  // between looks at interrupts

std::string WithWait(const std::string& text, Clock::duration waited) {
  std::ostringstream said;
  said << text << "\n  waited for " << std::chrono::duration<double>(waited).count() << " s, in vain";
  return said.str();
}

}  // namespace

// A place in the queue.  Meanwhile no thread caches anything, so that all that is freed can be had.
class Pool::Queued {
 public:
  Queued(Pool* pool, const Request& asked)
      : pool_(pool),
        waiter_{pool->guard_ == nullptr ? Rounded(asked.nbytes) : Guard::Backed(asked.nbytes, asked.align),
                asked.nbytes, asked.charge.get(), asked.patience.until_closed, Clock::now(),
                Clock::now() + std::chrono::nanoseconds(asked.patience.ns)} {
    std::lock_guard<std::mutex> lock(pool->mutex_);
    pool->queue_.Add(&waiter_);
    pool->caches_.KeepClosed();
    pool->FlushOthersLocked(nullptr);
  }
  ~Queued() {
    std::lock_guard<std::mutex> lock(pool_->mutex_);
    pool_->queue_.Remove(&waiter_);
    if (!pool_->queue_.any()) pool_->caches_.LetOpen();
    pool_->WakeLocked();
  }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;

  bool IsLate() const { return Clock::now() >= waiter_.deadline; }

  // True where nobody is in front.
  bool IsFirst() {
    std::lock_guard<std::mutex> lock(pool_->mutex_);
    if (waiter_.ended) throw PoolUsage("the pool is closed");
    waiter_.woken = false;
    waiter_.trying = true;
    return pool_->queue_.Ahead(&waiter_, waiter_.charge) == nullptr;
  }

  // It was refused for want of memory, or by the budget of a session.
  void Lacks(const Session* session) {
    std::lock_guard<std::mutex> lock(pool_->mutex_);
    waiter_.lacking = session;
    pool_->WakeLocked();
  }

  // Sleeps until it is woken, or late.
  void Sleep() {
    std::unique_lock<std::mutex> lock(pool_->mutex_);
    waiter_.trying = false;
    auto until = std::min(waiter_.deadline, Clock::now() + kSlice);
    if (waiter_.wake.wait_until(lock, until, [this] { return waiter_.woken; })) return;
    lock.unlock();
    if (pool_->check_interrupts_ != nullptr) pool_->check_interrupts_();
  }

  OutOfMemory InVain(const OutOfMemory& error) const {
    return OutOfMemory(WithWait(error.what(), Clock::now() - waiter_.begun));
  }

 private:
  Pool* pool_;
  Waiter waiter_;
};

// A block, from the cache only where it is charged: others have looked there.
void* Pool::Obtain(const Request& asked) {
  bool patient = asked.patience.ns > 0 && !IsAsking();
  if (patient && queue_.any() && IsHeldUp(asked)) return AwaitRoom(asked);
  for (int64_t tries = 0;; ++tries) {
    try {
      return TryAlloc(asked);
    } catch (const OutOfMemory& error) {
      if (AskForMemory(asked, tries, error)) continue;
      if (!patient) {
        CountRefused(asked);
        throw;
      }
    }
    return AwaitRoom(asked);
  }
}

bool Pool::IsHeldUp(const Request& asked) {
  std::lock_guard<std::mutex> lock(mutex_);
  return queue_.Ahead(nullptr, asked.charge.get()) != nullptr;
}

// Those in front go first; in the end it tries whoever is in front.
void* Pool::AwaitRoom(const Request& asked) {
  Queued queued(this, asked);
  for (;;) {
    bool late = queued.IsLate();
    if (queued.IsFirst() || late) {
      try {
        return TryAlloc(asked);
      } catch (const OutOfMemory& error) {
        if (late) {
          CountRefused(asked);
          throw queued.InVain(error);
        }
        auto* over = dynamic_cast<const OverBudget*>(&error);
        queued.Lacks(over == nullptr ? nullptr : over->session);
      }
    }
    queued.Sleep();
  }
}

void* Pool::TryAlloc(const Request& asked) {
  if (asked.charge == nullptr) return TryUncharged(asked);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    sessions_.Reserve(*asked.charge, asked.nbytes);
  }
  void* block = nullptr;
  try {
    bool cacheable = Cacheable(asked.nbytes, asked.align);
    if (cacheable) block = TakeCached(cache(), asked.nbytes);
    if (block == nullptr) block = TryUncharged(asked);
    std::lock_guard<std::mutex> lock(mutex_);
    sessions_.Add(block, asked.charge, asked.nbytes, asked.tag);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.what() + Discharge(asked));
  } catch (...) {
    if (block != nullptr) TakeBack(block, asked.nbytes);
    Discharge(asked);
    throw;
  }
  return block;
}

// Charges what is not had to nobody; says what the innermost session holds.
std::string Pool::Discharge(const Request& asked) {
  std::shared_ptr<Session> innermost = Sessions::Innermost(quick_.id);
  std::lock_guard<std::mutex> lock(mutex_);
  Sessions::Refund(*asked.charge, asked.nbytes);
  WakeLocked();
  return innermost == nullptr ? "" : SessionText(innermost->name, innermost->taken, innermost->limit);
}

void* Pool::TryUncharged(const Request& asked) {
  if (guard_ != nullptr) return AllocGuarded(asked.nbytes, asked.align);
  return Place(cache(), asked.nbytes, asked.align);
}

// Frees a block that nobody has got.
void Pool::TakeBack(void* block, int64_t nbytes) {
  if (guard_ != nullptr) {
    DropGuarded(block, nbytes);
  } else {
    FreeUncached(cache(), block, nbytes);
  }
}

void Pool::WakeLocked() {
  if (!queue_.any()) return;
  queue_.Wake([this](const Waiter& waiter) {
    if (range_.limit >= 0 && used_ + waiter.size > range_.limit) return false;
    return waiter.charge == nullptr || Sessions::Lacking(*waiter.charge, waiter.nbytes) == nullptr;
  });
}

void Pool::EndWaits() {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.End();
}

// A session counts a block as long as the pool does at most, and has its budget again when the pool has the block.
ChargeRef Pool::Uncharge(const void* block) {
  if (!tracker_.charging()) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  ChargeRef charge = sessions_.Remove(block);
  tracker_.SetCharging(sessions_.any());
  return charge;
}

void Pool::Refund(const ChargeRef& charge, int64_t nbytes) {
  if (charge == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  Sessions::Refund(*charge, nbytes);
  WakeLocked();
}

std::shared_ptr<Session> Pool::OpenSession(std::string name, int64_t limit, bool paged) {
  return std::shared_ptr<Session>(
      new Session{{limit}, std::move(name), Sessions::Innermost(quick_.id), paged ? SystemPage() : 0});
}

void Pool::EnterSession(std::shared_ptr<Session> session) {
  Sessions::Enter(quick_.id, std::move(session));
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_.CountEntered(1);
  tracker_.SetCharging(true);
}

void Pool::LeaveSession(const Session* session) {
  if (!Sessions::Leave(quick_.id, session)) throw PoolUsage("this thread is not in the session `" + session->name + "`");
  CountLeft();
}

void Pool::CountLeft() {
  std::lock_guard<std::mutex> lock(mutex_);
  sessions_.CountEntered(-1);
  tracker_.SetCharging(sessions_.any());
}

void Pool::SetSessionLimit(Session* session, int64_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  session->limit = limit;
  WakeLocked();
}

SessionStatistics Pool::ReadSession(const Session* session) {
  std::lock_guard<std::mutex> lock(mutex_);
  return *session;
}

std::map<std::string, Holding> Pool::HeldBy(const Session* session) {
  std::lock_guard<std::mutex> lock(mutex_);
  return sessions_.Held(session);
}

}  // namespace symalloc

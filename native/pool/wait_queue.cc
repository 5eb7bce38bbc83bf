#include "pool/wait_queue.h"

#include <algorithm>

namespace symalloc {

namespace {

bool WaitsForTheSame(const Waiter& waiter, const Charge* charge) {
  if (waiter.lacking == nullptr) return true;
  auto is = [&](const auto& each) { return each.get() == waiter.lacking; };
  return charge != nullptr && std::any_of(charge->begin(), charge->end(), is);
}

}  // namespace

void WaitQueue::Add(Waiter* waiter) {
  if (const Waiter* ahead = Ahead(waiter, waiter->charge)) waiter->lacking = ahead->lacking;
  waiters_.push_back(waiter);
  any_.store(true, std::memory_order_relaxed);
}

void WaitQueue::Remove(const Waiter* waiter) {
  waiters_.erase(std::remove(waiters_.begin(), waiters_.end(), waiter), waiters_.end());
  any_.store(!waiters_.empty(), std::memory_order_relaxed);
}

const Waiter* WaitQueue::Ahead(const Waiter* waiter, const Charge* charge) const {
  Waiter::Clock::time_point now{};
  if (waiter == nullptr) now = Waiter::Clock::now();
  for (const Waiter* each : waiters_) {
    if (each == waiter) break;
    bool passed = waiter == nullptr && now - each->begun < (each->deadline - each->begun) / 2;
    if (!passed && WaitsForTheSame(*each, charge)) return each;
  }
  return nullptr;
}

void WaitQueue::WakeAll() {
  for (Waiter* each : waiters_) Notify(each);
}

void WaitQueue::End() {
  for (Waiter* each : waiters_) {
    if (!each->until_closed) continue;
    each->ended = true;
    Notify(each);
  }
}

void WaitQueue::Forget() {
  waiters_.clear();
  any_.store(false, std::memory_order_relaxed);
}

}  // namespace symalloc

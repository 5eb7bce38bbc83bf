#include "watches.h"

#include <algorithm>
#include <utility>

namespace symalloc {

namespace {

bool Reached(const Watch& watch, int64_t in_use) { return watch.high ? in_use >= watch.at : in_use <= watch.at; }

bool Left(const Watch& watch, int64_t in_use) { return watch.high ? in_use <= watch.rearm : in_use >= watch.rearm; }

}  // namespace

int64_t Watches::Add(Watch watch, int64_t in_use) {
  watch.id = next_id_++;
  watch.armed = !Reached(watch, in_use);
  watches_.push_back(std::make_shared<Watch>(std::move(watch)));
  SetEdges();
  return watches_.back()->id;
}

Watches::Removed Watches::Remove(int64_t id) {
  auto stays = [id](const auto& watch) { return watch->id != id; };
  auto watch = std::stable_partition(watches_.begin(), watches_.end(), stays);
  auto due = std::stable_partition(due_.begin(), due_.end(), stays);
  Removed removed{{watch, watches_.end()}, {due, due_.end()}};
  watches_.erase(watch, watches_.end());
  due_.erase(due, due_.end());
  SetEdges();
  return removed;
}

Watches::Removed Watches::Clear() {
  Removed removed{std::exchange(watches_, {}), std::exchange(due_, {})};
  SetEdges();
  return removed;
}

Watches::Due Watches::Take() {
  due_flag_.store(false, std::memory_order_relaxed);
  std::sort(due_.begin(), due_.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return std::exchange(due_, {});
}

void Watches::Done(Watch* watch, int64_t in_use) {
  watch->running = false;
  Update(in_use);
}

void Watches::Update(int64_t in_use) {
  for (auto& watch : watches_) {
    if (watch->running) continue;
    if (watch->armed && Reached(*watch, in_use)) {
      watch->armed = false;
      watch->running = true;
      due_.push_back(watch);
      due_flag_.store(true, std::memory_order_relaxed);
    } else if (!watch->armed && Left(*watch, in_use)) {
      watch->armed = true;
    }
  }
  SetEdges();
}

void Watches::SetEdges() {
  above_ = std::numeric_limits<int64_t>::max();
  below_ = -1;
  for (const auto& watch : watches_) {
    if (watch->running) continue;
    int64_t edge = watch->armed ? watch->at : watch->rearm;
    if (watch->high == watch->armed) {
      above_ = std::min(above_, edge);
    } else {
      below_ = std::max(below_, edge);
    }
  }
}

}  // namespace symalloc

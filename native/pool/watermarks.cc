#include "pool/watermarks.h"

#include <algorithm>
#include <utility>

namespace symalloc {

namespace {

bool Reached(const Watermark& mark, int64_t in_use) { return mark.high ? in_use >= mark.at : in_use <= mark.at; }

bool Left(const Watermark& mark, int64_t in_use) {
  return mark.high ? in_use <= mark.rearm : in_use >= mark.rearm;
}

}  // namespace

int64_t Watermarks::Add(Watermark watermark, int64_t in_use) {
  watermark.id = next_id_++;
  watermark.armed = !Reached(watermark, in_use);
  watermarks_.push_back(std::make_shared<Watermark>(std::move(watermark)));
  SetEdges();
  return watermarks_.back()->id;
}

Watermarks::Removed Watermarks::Remove(int64_t id) {
  auto stays = [id](const auto& watermark) { return watermark->id != id; };
  auto watermark = std::stable_partition(watermarks_.begin(), watermarks_.end(), stays);
  auto due = std::stable_partition(due_.begin(), due_.end(), stays);
  Removed removed{{watermark, watermarks_.end()}, {due, due_.end()}};
  watermarks_.erase(watermark, watermarks_.end());
  due_.erase(due, due_.end());
  SetEdges();
  return removed;
}

Watermarks::Removed Watermarks::Clear() {
  Removed removed{std::exchange(watermarks_, {}), std::exchange(due_, {})};
  SetEdges();
  return removed;
}

Watermarks::Due Watermarks::Take() {
  due_flag_.store(false, std::memory_order_relaxed);
  std::sort(due_.begin(), due_.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return std::exchange(due_, {});
}

void Watermarks::Done(Watermark* watermark, int64_t in_use) {
  watermark->running = false;
  Update(in_use);
}

void Watermarks::Update(int64_t in_use) {
  for (auto& watermark : watermarks_) {
    if (watermark->running) continue;
    if (watermark->armed && Reached(*watermark, in_use)) {
      watermark->armed = false;
      watermark->running = true;
      due_.push_back(watermark);
      due_flag_.store(true, std::memory_order_relaxed);
    } else if (!watermark->armed && Left(*watermark, in_use)) {
      watermark->armed = true;
    }
  }
  SetEdges();
}

void Watermarks::SetEdges() {
  above_ = std::numeric_limits<int64_t>::max();
  below_ = -1;
  for (const auto& watermark : watermarks_) {
    if (watermark->running) continue;
    int64_t edge = watermark->armed ? watermark->at : watermark->rearm;
    if (watermark->high == watermark->armed) {
      above_ = std::min(above_, edge);
    } else {
      below_ = std::max(below_, edge);
    }
  }
}

}  // namespace symalloc

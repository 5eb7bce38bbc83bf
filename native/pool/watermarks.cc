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

Watermarks::List Watermarks::Remove(int64_t id) {
  auto stays = [id](const auto& watermark) { return watermark->id != id; };
  auto first = std::stable_partition(watermarks_.begin(), watermarks_.end(), stays);
  List removed(first, watermarks_.end());
  watermarks_.erase(first, watermarks_.end());
  for (const auto& watermark : removed) watermark->removed = true;
  SetEdges();
  return removed;
}

Watermarks::List Watermarks::Clear() {
  List removed = std::exchange(watermarks_, {});
  for (const auto& watermark : removed) watermark->removed = true;
  SetEdges();
  return removed;
}

Watermarks::List Watermarks::Take() {
  List due;
  for (const auto& watermark : watermarks_) {
    if (watermark->due) due.push_back(watermark);
  }
  for (const auto& watermark : due) watermark->due = false;
  flags_.Set(QuickFlags::kDue, false);
  return due;
}

void Watermarks::Done(Watermark* watermark, int64_t in_use) {
  watermark->running = false;
  Update(in_use);
}

void Watermarks::Return(Watermark* watermark) {
  watermark->due = true;
  flags_.Set(QuickFlags::kDue, true);
}

void Watermarks::Update(int64_t in_use) {
  for (const auto& watermark : watermarks_) {
    if (watermark->running) continue;
    if (watermark->armed && Reached(*watermark, in_use)) {
      watermark->armed = false;
      watermark->running = watermark->due = true;
      flags_.Set(QuickFlags::kDue, true);
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

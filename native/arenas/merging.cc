#include "arenas/merging.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace symalloc::arenas {

namespace {

// Adds a size, or takes it away, while it is held, to rows the first of which is that of the column `first`.
void AddTo(Bytes* rows, const Spans& spans, const double* size, size_t width, int32_t first, double sign = 1.0) {
  for (const Held& one : spans) {
    for (int32_t column = one.begin; column < one.end; ++column) {
      double* row = rows->data() + (column - first) * width;
      for (size_t at = 0; at < width; ++at) row[at] += sign * size[at];
    }
  }
}

}  // namespace

Merging::Merging(const CallTimeline& memory, const Groups& groups, Bytes spare, const MergeOptions& options)
    : memory_(memory),
      columns_(memory.columns()),
      spare_(std::move(spare)),
      width_(memory.width()),
      options_(options) {
  for (const std::vector<int32_t>& group : groups) {
    Members all = columns_.Together(group);
    Spans spans = columns_.Reserved(all);
    groups_.push_back({std::move(all), memory_.Height(group), std::move(spans)});
  }
}

Groups Merging::Run() {
  if (options_.many) groups_ = Stretches(std::move(groups_));
  const size_t count = groups_.size(), reach = options_.many ? options_.reach : count;
  const int64_t most = options_.many ? static_cast<int64_t>(reach * count) : options_.most_tried;
  int64_t tried = 0;
  for (size_t first = 0; first < groups_.size(); ++first) {
    size_t second = first + 1;
    while (second < std::min(groups_.size(), first + 1 + reach) && tried < most) {
      tried = work_ > options_.most_work ? most : tried + 1;
      std::optional<Group> both = Joined({&groups_[first], &groups_[second]});
      if (!both) {
        ++second;
        continue;
      }
      groups_[first] = *std::move(both);
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(second));
    }
  }
  Groups found;
  for (const Group& group : groups_) found.push_back(group.members.list);
  return found;
}

// As many neighbours joined as there is room for.
std::vector<Merging::Group> Merging::Stretches(std::vector<Group> groups) {
  if (groups.size() == 1 || work_ > options_.most_work) return groups;
  std::vector<const Group*> all;
  for (const Group& group : groups) all.push_back(&group);
  if (std::optional<Group> whole = Joined(all)) {
    std::vector<Group> alone;
    alone.push_back(*std::move(whole));
    return alone;
  }
  const auto middle = std::make_move_iterator(groups.begin() + static_cast<std::ptrdiff_t>(groups.size() / 2));
  using Half = std::vector<Group>;
  Half left = Stretches(Half(std::make_move_iterator(groups.begin()), middle));
  Half right = Stretches(Half(middle, std::make_move_iterator(groups.end())));
  std::move(right.begin(), right.end(), std::back_inserter(left));
  return left;
}

// The groups in one where there is room for that, which is taken then.
std::optional<Merging::Group> Merging::Joined(const std::vector<const Group*>& groups) {
  size_t count = 0;
  for (const Group* group : groups) count += group->members.list.size();
  if (options_.many && count > static_cast<size_t>(options_.most_together)) return std::nullopt;
  Group together{groups.front()->members, Bytes(width_), {}};
  for (size_t place = 1; place < groups.size(); ++place) {
    columns_.Add(groups[place]->members, &together.members);
  }
  if (!columns_.Possible(together.members)) return std::nullopt;
  std::sort(together.members.list.begin(), together.members.list.end());
  together.spans = columns_.Reserved(together.members);
  std::vector<const Spans*> spans{&together.spans};
  for (const Group* group : groups) spans.push_back(&group->spans);
  const Held bounds = BoundsOf(spans);
  work_ += options_.trial + (bounds.end - bounds.begin) * static_cast<int64_t>(width_);
  for (const Group* group : groups) {  // at least as large as each of theirs
    for (size_t at = 0; at < width_; ++at) together.height[at] = std::max(together.height[at], group->height[at]);
  }
  if (memory_.exact() && !Fits(groups, together)) return std::nullopt;
  together.height = memory_.Height(together.members.list);
  if (!Fits(groups, together)) return std::nullopt;
  Take(groups, together);
  return together;
}

// Whether no more is taken than is spare, and nothing where none is.
bool Merging::Fits(const std::vector<const Group*>& groups, const Group& together) const {
  constexpr double kSlack = 0.5;  // bytes: less is an error of rounding
  std::vector<const Held*> held(groups.size());
  Bytes change(width_);
  for (const Held& span : together.spans) {
    for (size_t place = 0; place < groups.size(); ++place) held[place] = On(groups[place]->spans, span.path);
    for (int32_t column = span.begin; column < span.end; ++column) {
      std::fill(change.begin(), change.end(), 0.0);
      for (size_t place = 0; place < groups.size(); ++place) {
        if (!Within(held[place], column)) continue;
        for (size_t at = 0; at < width_; ++at) change[at] += groups[place]->height[at];
      }
      const double* spare = spare_.data() + column * width_;
      bool full = false;
      for (size_t at = 0; at < width_; ++at) {
        full |= (change[at] - together.height[at]) + std::max(spare[at], 0.0) < -kSlack;
      }
      if (full) return false;
    }
  }
  return true;
}

void Merging::Take(const std::vector<const Group*>& groups, const Group& together) {
  std::vector<const Spans*> spans{&together.spans};
  for (const Group* group : groups) spans.push_back(&group->spans);
  const Held bounds = BoundsOf(spans);
  Bytes change((bounds.end - bounds.begin) * width_);
  for (const Group* group : groups) AddTo(&change, group->spans, group->height.data(), width_, bounds.begin);
  AddTo(&change, together.spans, together.height.data(), width_, bounds.begin, -1.0);
  for (size_t cell = 0; cell < change.size(); ++cell) spare_[bounds.begin * width_ + cell] += change[cell];
}

}  // namespace symalloc::arenas

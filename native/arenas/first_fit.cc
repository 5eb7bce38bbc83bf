#include "arenas/first_fit.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace symalloc::arenas {

namespace {

constexpr double kSlack = 0.5;  // bytes: less is an error of rounding

bool AnyBelow(const Bytes& values, double bound) {
  return std::any_of(values.begin(), values.end(), [&](double value) { return value < bound; });
}

}  // namespace

FirstFit::FirstFit(const CallTimeline& memory, Left left, const FitOptions& options)
    : memory_(memory),
      columns_(memory.columns()),
      left_(std::move(left)),
      options_(options),
      width_(memory.width()) {
  fine_ = !AnyBelow(left_.room, -kSlack) && !AnyBelow(left_.spare, -kSlack);
}

void FirstFit::Add(const std::vector<int32_t>& members, bool open) {
  const int32_t one = members.front();
  Group group{columns_.Together(members), columns_.tenant(one).kept(), open, SparseBytes(memory_.cells()),
              memory_.Height(members),
              {},
              -1};
  for (int32_t i : members) Load(&group, i);
  Hold(&group, columns_.Reserved(group.members));
  groups_.push_back(std::move(group));
}

bool FirstFit::Enter(const std::vector<int32_t>& order) {
  const size_t most = options_.spread ? options_.spread : std::numeric_limits<size_t>::max();
  for (int32_t i : order) {
    if (!Enter(i) || groups_.size() > most || work_ > options_.most_work) return false;
  }
  return true;
}

Groups FirstFit::Members() const {
  Groups groups;
  for (const Group& group : groups_) groups.push_back(group.members.list);
  return groups;
}

void FirstFit::Hold(Group* group, Spans spans) const {
  group->spans = std::move(spans);
  group->first = -1;
  for (const Held& one : group->spans) {
    if (!columns_.IsPath(one.path)) continue;
    group->first = one.begin;
    break;
  }
}

void FirstFit::Load(Group* group, int32_t i) const {
  const double* size = bytes(i);
  for (const Held& one : columns_.held(i)) {
    for (int32_t column = one.begin; column < one.end; ++column) {
      double* load = group->load.get() + column * width_;
      for (size_t at = 0; at < width_; ++at) load[at] += size[at];
    }
  }
}

// Puts a tensor into the group that grows least by it, or into one of its own; whether that keeps the limit.
bool FirstFit::Enter(int32_t i) {
  std::optional<Joined> best;
  Group* chosen = nullptr;
  int64_t tried = 0;
  for (auto group = groups_.rbegin(); group != groups_.rend() && tried < options_.most_tried; ++group) {
    if (!group->open) continue;
    ++tried;
    work_ += options_.trial;
    std::optional<Joined> found = Join(*group, i, best ? best->growth : std::numeric_limits<double>::infinity());
    if (!found) continue;
    best = std::move(found);
    chosen = &*group;
    if (best->growth <= 0) break;
  }
  if (!best || (groups_.size() < options_.spread && best->growth >= left_.shares[i] - 1e-9)) {
    Add({i}, true);
    return options_.counted || Alone(i);
  }
  if (!Unchanged(*chosen, *best)) Change(*chosen, i, *best);
  columns_.Add(columns_.Alone(i), &chosen->members);
  Load(chosen, i);
  chosen->height = std::move(best->height);
  Hold(chosen, std::move(best->spans));
  return true;
}

// Counts a tensor that lies in no group; whether there is room for it.
bool FirstFit::Alone(int32_t i) {
  bool fine = true;
  for (const Held& one : columns_.held(i)) {
    for (Bytes* room : {&left_.room, &left_.spare}) {
      for (size_t cell = one.begin * width_; cell < one.end * width_; ++cell) {
        (*room)[cell] -= bytes(i)[cell % width_];
        fine = fine && !((*room)[cell] < -kSlack);
      }
    }
  }
  return fine;
}

// Whether an arena cannot even become as large as a tensor where it is first held, and the tensor is not.
bool FirstFit::Full(const Group& group, int32_t i) const {
  if (group.kept || group.first < 0) return false;
  for (const Held& one : columns_.held(i)) {
    if (Within(&one, group.first)) return false;
  }
  const size_t start = group.first * width_;
  for (size_t at = 0; at < width_; ++at) {
    const double left = std::min(left_.room[start + at], left_.spare[start + at]);
    if (bytes(i)[at] - group.height[at] > left + kSlack) return true;
  }
  return false;
}

// Whether a tensor ends before the result whose memory the group lies in is made.
bool FirstFit::Before(const Group& group, int32_t i) const {
  for (const Held& one : columns_.held(i)) {
    const Held* result = On(columns_.held(group.members.list.front()), one.path);
    if (result && one.end > result->begin) return false;
  }
  return true;
}

// By how much the group would grow, where there is room for it, and that is `less`.
std::optional<FirstFit::Joined> FirstFit::Join(const Group& group, int32_t i, double less) {
  const double* size = bytes(i);
  if (group.kept) {
    for (size_t at = 0; at < width_; ++at) {
      if (size[at] > group.height[at] + kSlack) return std::nullopt;
    }
    if (!Before(group, i)) return std::nullopt;
  }
  if (Full(group, i)) return std::nullopt;
  Joined joined{0.0, Bytes(width_), {}};
  for (const Held& one : columns_.held(i)) {
    for (int32_t column = one.begin; column < one.end; ++column) {
      const double* load = group.load.get() + column * width_;
      for (size_t at = 0; at < width_; ++at) joined.height[at] = std::max(joined.height[at], load[at]);
    }
  }
  const bool held = !columns_.held(i).empty();
  for (size_t at = 0; at < width_; ++at) {
    const double height = group.height[at];
    joined.height[at] = held ? std::max(height, joined.height[at] + size[at]) : height;
    const double grown = joined.height[at] - height;
    if (group.kept && grown > kSlack) return std::nullopt;
    joined.growth += grown / left_.scale[at];
  }
  if (joined.growth >= less || !columns_.MayJoin(group.members, i)) return std::nullopt;
  joined.spans = columns_.Extended(group.spans, group.members, i);
  if (fine_ && Unchanged(group, joined)) return joined;
  const auto fits = [&](size_t start, const double* more) {
    const double *room = left_.room.data() + start, *spare = left_.spare.data() + start;
    bool full = false;
    for (size_t at = 0; at < width_; ++at) {
      const double left = group.kept ? room[at] : std::min(room[at], spare[at]);
      full |= more[at] - left > kSlack;
    }
    return !full;
  };
  if (!Changed(group, i, joined, fits)) return std::nullopt;
  return joined;
}

// Whether no column takes more or less for it.
bool FirstFit::Unchanged(const Group& group, const Joined& joined) const {
  return joined.growth == 0.0 && !options_.counted && joined.spans == group.spans;
}

// Hands the bytes that are taken more where a tensor joins a group to `visit`, column by column, as long as it answers
// true; whether it always does.
template <typename Visit>
bool FirstFit::Changed(const Group& group, int32_t i, const Joined& joined, Visit visit) {
  Bytes rows[4];  // besides the group's arena, besides the tensor alone, both
  for (int kind = 0; kind < 4; ++kind) {
    rows[kind] = joined.height;
    for (size_t at = 0; at < width_; ++at) {
      if (kind & 1) rows[kind][at] -= group.height[at];
      if (kind & 2) rows[kind][at] -= bytes(i)[at];
    }
  }
  for (const Held& span : joined.spans) {
    work_ += (span.end - span.begin) * width_;
    const Held *now = On(group.spans, span.path), *alone = options_.counted ? On(columns_.held(i), span.path) : nullptr;
    for (int32_t column = span.begin; column < span.end; ++column) {
      const int kind = (Within(now, column) ? 1 : 0) + (Within(alone, column) ? 2 : 0);
      if (!visit(column * width_, rows[kind].data())) return false;
    }
  }
  return true;
}

void FirstFit::Change(const Group& group, int32_t i, const Joined& joined) {
  Changed(group, i, joined, [&](size_t start, const double* more) {
    for (size_t at = 0; at < width_; ++at) {
      left_.room[start + at] -= more[at];
      if (!group.kept) left_.spare[start + at] -= more[at];
    }
    return true;
  });
  if (!group.kept || !options_.counted) return;
  for (const Held& one : columns_.held(i)) {
    for (size_t cell = one.begin * width_; cell < one.end * width_; ++cell) {
      left_.spare[cell] += bytes(i)[cell % width_];
    }
  }
}

}  // namespace symalloc::arenas

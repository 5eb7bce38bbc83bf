#include "arenas/call_timeline.h"

#include <algorithm>
#include <utility>

namespace symalloc::arenas {

CallTimeline::CallTimeline(const CallColumns& columns, Bytes bytes, size_t width, bool exact)
    : columns_(columns), bytes_(std::move(bytes)), width_(width), exact_(exact) {}

// Where sums are exact, what begins and what ends is summed up once; else each column in the order of `all`.
void CallTimeline::Sum(const std::vector<Taken>& all, int32_t first, int32_t last, double* sums) const {
  const size_t count = (last - first) * width_;
  std::fill_n(sums, count, 0.0);
  const auto add = [&](int32_t column, const double* bytes, double sign) {
    double* row = sums + (column - first) * width_;
    for (size_t at = 0; at < width_; ++at) row[at] += sign * bytes[at];
  };
  for (const Taken& one : all) {
    for (const Held& span : *one.held) {
      if (exact_) {
        add(span.begin, one.bytes, 1.0);
        if (span.end < last) add(span.end, one.bytes, -1.0);
      } else {
        for (int32_t column = span.begin; column < span.end; ++column) add(column, one.bytes, 1.0);
      }
    }
  }
  for (size_t cell = width_; exact_ && cell < count; ++cell) sums[cell] += sums[cell - width_];
}

// Calls visit(column, bytes) at each of the columns [first, last) at which another sum is taken than before, in turn.
template <typename Visit>
void CallTimeline::Sweep(const std::vector<Taken>& all, int32_t first, int32_t last, Visit visit) const {
  struct Change {
    const double* bytes;
    double sign;
    int32_t next;  // of the same column; -1: none
  };
  std::vector<int32_t> latest(last - first, -1);
  std::vector<Change> changes;
  changes.reserve(2 * all.size());
  const auto note = [&](int32_t column, const double* bytes, double sign) {
    if (column == last) return;
    changes.push_back({bytes, sign, latest[column - first]});
    latest[column - first] = static_cast<int32_t>(changes.size()) - 1;
  };
  for (const Taken& one : all) {
    for (const Held& span : *one.held) {
      note(span.begin, one.bytes, 1.0);
      note(span.end, one.bytes, -1.0);
    }
  }
  Bytes now(width_);
  for (int32_t column = first; column < last; ++column) {
    if (latest[column - first] < 0) continue;
    for (int32_t i = latest[column - first]; i >= 0; i = changes[i].next) {
      for (size_t at = 0; at < width_; ++at) now[at] += changes[i].sign * changes[i].bytes[at];
    }
    visit(column, now.data());
  }
}

void CallTimeline::Raise(const double* bytes, double* most) const {
  for (size_t at = 0; at < width_; ++at) most[at] = std::max(most[at], bytes[at]);
}

std::vector<CallTimeline::Taken> CallTimeline::TakenBy(const std::vector<int32_t>& members) const {
  std::vector<Taken> all;
  all.reserve(members.size());
  for (int32_t i : members) all.push_back({bytes(i), &columns_.held(i)});
  return all;
}

CallTimeline::TakenByArenas CallTimeline::TakenBy(const Groups& groups, const std::vector<bool>& lent) const {
  TakenByArenas found;
  auto& [heights, held, all] = found;
  heights.reserve(groups.size());  // what is in them stays where it is
  held.reserve(groups.size());
  for (size_t place = 0; place < groups.size(); ++place) {
    const int32_t first = groups[place].front();
    if (groups[place].size() == 1 && !lent[place]) all.push_back({bytes(first), &columns_.held(first)});
  }
  for (size_t place = 0; place < groups.size(); ++place) {
    if (groups[place].size() == 1 && !lent[place]) continue;
    heights.push_back(Height(groups[place]));
    held.push_back(lent[place] ? columns_.Always() : columns_.Reserved(columns_.Together(groups[place])));
    all.push_back({heights.back().data(), &held.back()});
  }
  return found;
}

void CallTimeline::Load(const std::vector<int32_t>& members, int32_t first, int32_t last, double* sums) const {
  Sum(TakenBy(members), first, last, sums);
}

Bytes CallTimeline::Height(const std::vector<int32_t>& members) const {
  if (members.size() == 1) return Bytes(bytes(members[0]), bytes(members[0]) + width_);
  std::vector<const Spans*> spans;
  for (int32_t i : members) spans.push_back(&columns_.held(i));
  const Held within = BoundsOf(spans);
  Bytes height(width_);
  if (exact_) {
    const auto raise = [&](int32_t, const double* bytes) { Raise(bytes, height.data()); };
    Sweep(TakenBy(members), within.begin, within.end, raise);
    return height;
  }
  Bytes load((within.end - within.begin) * width_);
  Load(members, within.begin, within.end, load.data());
  for (size_t start = 0; start < load.size(); start += width_) Raise(load.data() + start, height.data());
  return height;
}

void CallTimeline::Arenas(const Groups& groups, const std::vector<bool>& lent, double* sums) const {
  Sum(TakenBy(groups, lent).all, 0, columns_.its().columns, sums);
}

void CallTimeline::Peaks(const Groups& groups, const std::vector<bool>& lent, const std::vector<int32_t>& bounds,
                         double* most) const {
  std::fill_n(most, (bounds.size() - 1) * width_, 0.0);
  size_t path = 0;
  Sweep(TakenBy(groups, lent).all, 0, columns_.its().columns, [&](int32_t column, const double* bytes) {
    while (column >= bounds[path + 1]) ++path;
    Raise(bytes, most + path * width_);
  });
}

}  // namespace symalloc::arenas

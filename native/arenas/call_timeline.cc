#include "arenas/call_timeline.h"

#include <algorithm>
#include <utility>

namespace symalloc::arenas {

CallTimeline::CallTimeline(const CallColumns& columns, Bytes bytes, size_t width, bool exact)
    : columns_(columns), bytes_(std::move(bytes)), width_(width), exact_(exact) {}

// Where sums are exact, what begins and what ends is summed up once; else each column in the order of `all`.
Bytes CallTimeline::Sums(const std::vector<Taken>& all, int32_t first, int32_t last) const {
  Bytes sums((last - first + 1) * width_);
  const auto add = [&](int32_t column, const double* bytes, double sign) {
    double* row = sums.data() + (column - first) * width_;
    for (size_t at = 0; at < width_; ++at) row[at] += sign * bytes[at];
  };
  for (const Taken& one : all) {
    for (const Held& span : *one.held) {
      if (exact_) {
        add(span.begin, one.bytes, 1.0);
        add(span.end, one.bytes, -1.0);
      } else {
        for (int32_t column = span.begin; column < span.end; ++column) add(column, one.bytes, 1.0);
      }
    }
  }
  for (size_t cell = width_; exact_ && cell < sums.size(); ++cell) sums[cell] += sums[cell - width_];
  sums.resize(sums.size() - width_);
  return sums;
}

Bytes CallTimeline::Load(const std::vector<int32_t>& members, int32_t first, int32_t last) const {
  std::vector<Taken> all;
  for (int32_t i : members) all.push_back({bytes(i), &columns_.held(i)});
  return Sums(all, first, last);
}

Bytes CallTimeline::Height(const std::vector<int32_t>& members) const {
  if (members.size() == 1) return Bytes(bytes(members[0]), bytes(members[0]) + width_);
  std::vector<const Spans*> spans;
  for (int32_t i : members) spans.push_back(&columns_.held(i));
  const Held within = BoundsOf(spans);
  const Bytes load = Load(members, within.begin, within.end);
  Bytes height(width_);
  for (size_t start = 0; start < load.size(); start += width_) {
    for (size_t at = 0; at < width_; ++at) height[at] = std::max(height[at], load[start + at]);
  }
  return height;
}

Bytes CallTimeline::Arenas(const Groups& groups, const std::vector<bool>& lent) const {
  std::vector<Taken> all;
  std::vector<Bytes> heights;
  std::vector<Spans> held;
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
  return Sums(all, 0, columns_.its().columns);
}

}  // namespace symalloc::arenas

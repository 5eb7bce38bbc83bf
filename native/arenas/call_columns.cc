#include "arenas/call_columns.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace symalloc::arenas {

namespace {

using Points = std::vector<int32_t>;

int32_t Before(const Points& sorted, int64_t point) {
  return static_cast<int32_t>(std::lower_bound(sorted.begin(), sorted.end(), point) - sorted.begin());
}

bool AnyWithin(const Points& sorted, int64_t begin, int64_t end) { return Before(sorted, begin) < Before(sorted, end); }

size_t Common(const std::vector<Block>& left, const std::vector<Block>& right, size_t most) {
  size_t depth = 0;
  while (depth < most && left[depth] == right[depth]) ++depth;
  return depth;
}

}  // namespace

Held BoundsOf(const std::vector<const Spans*>& all) {
  Held bounds{0, 0, 0};
  for (const Spans* spans : all) {
    for (const Held& one : *spans) {
      bounds.begin = bounds.end ? std::min(bounds.begin, one.begin) : one.begin;
      bounds.end = std::max(bounds.end, one.end);
    }
  }
  return bounds;
}

const Held* On(const Spans& spans, int32_t path) {
  const auto found = std::find_if(spans.begin(), spans.end(), [&](const Held& one) { return one.path == path; });
  return found == spans.end() ? nullptr : &*found;
}

CallColumns::CallColumns(Structure structure) : its_(std::move(structure)) {
  for (int32_t i = 0; i < static_cast<int32_t>(its_.tenants.size()); ++i) {
    Members one{{i}, i, its_.straight ? 0 : its_.chains[i].size(), tenant(i).known, {}};
    if (its_.straight) {
      one.ends.push_back(held(i).front().end);
    } else {
      for (const Structure::Path& path : its_.paths) one.ends.push_back(End(path, i));
    }
    alone_.push_back(std::move(one));
  }
}

bool CallColumns::IsPath(int32_t path) const {
  const auto same = [&](const Structure::Path& one) { return one.number == path; };
  return std::any_of(its_.paths.begin(), its_.paths.end(), same);
}

// To its last use, or to the If behind which it lies on another path.
int32_t CallColumns::End(const Structure::Path& path, int32_t i) const {
  if (const Held* one = On(held(i), path.number)) return one->end;
  for (const Block& block : its_.chains[i]) {
    if (AnyWithin(path.sorted, block.begin, block.end)) continue;
    return path.offset + Before(path.sorted, int64_t{block.branch} + 1);
  }
  return 0;
}

Members CallColumns::Together(const std::vector<int32_t>& all) const {
  Members members = alone_[all.front()];
  for (size_t place = 1; place < all.size(); ++place) Add(alone_[all[place]], &members);
  return members;
}

void CallColumns::Add(const Members& others, Members* members) const {
  if (!its_.straight) {
    const size_t most = std::min(members->depth, others.depth);
    members->depth = Common(its_.chains[members->first], its_.chains[others.first], most);
  }
  if (tenant(others.first).made < tenant(members->first).made) members->first = others.first;
  members->known = std::max(members->known, others.known);
  members->list.insert(members->list.end(), others.list.begin(), others.list.end());
  for (size_t place = 0; place < members->ends.size(); ++place) {
    members->ends[place] = std::max(members->ends[place], others.ends[place]);
  }
}

Members CallColumns::With(Members members, int32_t i) const {
  Add(alone_[i], &members);
  return members;
}

// Of the program, in front of which their arena is reserved.
int64_t CallColumns::Point(const Members& members) const {
  if (its_.straight) return tenant(members.first).made;
  const std::vector<Block>& chain = its_.chains[members.first];
  return members.depth < chain.size() ? chain[members.depth].branch : tenant(members.first).made;
}

Spans CallColumns::Reserved(const Members& members) const {
  if (members.list.size() == 1) return held(members.first);
  if (its_.straight) return {{0, static_cast<int32_t>(tenant(members.first).column), members.ends[0]}};
  Spans spans;
  const int64_t point = Point(members);
  for (size_t place = 0; place < its_.paths.size(); ++place) {
    const Structure::Path& path = its_.paths[place];
    if (members.depth > 0) {
      const Block& block = its_.chains[members.first][members.depth - 1];
      if (!AnyWithin(path.sorted, block.begin, block.end)) continue;
    } else if (path.sorted.empty()) {
      continue;
    }
    const int32_t begin = path.offset + Before(path.latest, point);
    if (begin < members.ends[place]) spans.push_back({path.number, begin, members.ends[place]});
  }
  return spans;
}

Spans CallColumns::Always() const {
  Spans spans;
  for (const Structure::Path& path : its_.paths) spans.push_back({path.number, path.offset, path.end});
  return spans;
}

Spans CallColumns::Extended(const Spans& spans, const Members& members, int32_t i) const {
  if (!its_.straight || spans.size() != 1) return Reserved(With(members, i));
  const Held& now = spans.front();
  const int32_t begin = std::min(now.begin, static_cast<int32_t>(tenant(i).column));
  return {{now.path, begin, std::max(now.end, held(i).front().end)}};
}

bool CallColumns::Possible(const Members& members) const {
  if (its_.all_known || members.list.size() == 1) return true;
  const auto loose = [&](int32_t i) { return tenant(i).loose(); };
  if (std::any_of(members.list.begin(), members.list.end(), loose)) return false;
  return (its_.alike || OfOneKind(members)) && KnownInTime(members);
}

bool CallColumns::MayJoin(const Members& members, int32_t i) const {
  if (its_.all_known) return true;
  const Tenant &one = tenant(i), &other = tenant(members.list.front());
  if (one.loose() || other.loose() || (other.kept() && one.constant > other.least)) return false;
  if (!its_.alike && (one.kind() != other.kind() || (one.grounded() && MeetsAny(i, members)))) return false;
  if (!its_.late) return true;
  if (its_.straight) return one.known < tenant(members.first).made && members.known < one.made;
  return KnownInTime(With(members, i));
}

bool CallColumns::KnownInTime(const Members& members) const {
  return members.known < 0 || members.known < Point(members);
}

bool CallColumns::OfOneKind(const Members& members) const {
  std::vector<Interval> live;
  for (int32_t i : members.list) {
    if (tenant(i).kind() != tenant(members.list.front()).kind()) return false;
    if (tenant(i).grounded()) live.insert(live.end(), its_.live[i].begin(), its_.live[i].end());
  }
  const auto earlier = [](const Interval& a, const Interval& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); };
  std::sort(live.begin(), live.end(), earlier);
  const auto meet = [](const Interval& before, const Interval& after) { return before.end > after.begin; };
  return std::adjacent_find(live.begin(), live.end(), meet) == live.end();
}

bool CallColumns::MeetsAny(int32_t i, const Members& members) const {
  for (int32_t other : members.list) {
    for (const Interval& one : its_.live[i]) {
      for (const Interval& two : its_.live[other]) {
        if (std::max(one.begin, two.begin) < std::min(one.end, two.end)) return true;
      }
    }
  }
  return false;
}

}  // namespace symalloc::arenas

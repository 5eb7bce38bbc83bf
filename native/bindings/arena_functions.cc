// The grouping of tensors into arenas for tvm-ffi: symalloc/native/native_functions.pyi has the types of its functions.
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "arenas/call_columns.h"
#include "arenas/call_timeline.h"
#include "arenas/first_fit.h"
#include "arenas/merging.h"
#include "bindings/numbers.h"
#include "bindings/translated.h"

namespace symalloc::arenas {

namespace ffi = tvm::ffi;

namespace {

using packer::BytesOf;
using packer::ListsOf;
using packer::Numbers;
using packer::ValuesOf;
using Order = std::vector<int32_t>;

constexpr char kWhat[] = "the grouping of tensors";  // that memory is for

void Require(bool holds, const char* what) {
  if (!holds) throw ffi::Error("ValueError", std::string("grouping tensors: ") + what, "");
}

class ColumnsObj : public ffi::Object {
 public:
  explicit ColumnsObj(Structure structure) : columns(std::move(structure)) {}

  const CallColumns columns;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.arenas.Columns", ColumnsObj, ffi::Object);
};

class ColumnsRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(ColumnsRef, ffi::ObjectRef, ColumnsObj);
};

class TimelineObj : public ffi::Object {
 public:
  TimelineObj(ColumnsRef its, Bytes bytes, size_t width, bool exact)
      : columns(std::move(its)), memory(columns->columns, std::move(bytes), width, exact) {}

  const ColumnsRef columns;
  const CallTimeline memory;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.arenas.Timeline", TimelineObj, ffi::Object);
};

class TimelineRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(TimelineRef, ffi::ObjectRef, TimelineObj);
};

// Lists of records of int32.
template <typename Record>
std::vector<std::vector<Record>> Records(const ffi::Bytes& bytes) {
  constexpr int64_t kWidth = sizeof(Record) / sizeof(int32_t);
  const Lists lists = ListsOf(bytes);
  std::vector<std::vector<Record>> found(lists.size());
  for (int32_t i = 0; i < lists.size(); ++i) {
    Require(lists[i].size() % kWidth == 0, "part of a record is missing");
    found[i].resize(lists[i].size() / kWidth);
    if (!found[i].empty()) std::memcpy(found[i].data(), lists[i].begin(), lists[i].size() * sizeof(int32_t));
  }
  return found;
}

// From the column of each, then the point of each, and so on.
std::vector<Tenant> TenantsOf(const ffi::Bytes& bytes) {
  constexpr size_t kFields = sizeof(Tenant) / sizeof(int64_t);
  const std::vector<int64_t> all = Numbers<int64_t>(bytes);
  const size_t count = all.size() / kFields;
  Require(all.size() % kFields == 0, "part of a tensor is missing");
  std::vector<Tenant> tenants;
  for (size_t i = 0; i < count; ++i) {
    const int64_t* one = all.data() + i;
    tenants.push_back({one[0], one[count], one[2 * count], one[3 * count], one[4 * count], one[5 * count]});
  }
  return tenants;
}

// `columns` has the number of each path, its first column and the one behind its last.
std::vector<Structure::Path> PathsOf(const ffi::Bytes& columns, const ffi::Bytes& steps) {
  const std::vector<Held> all = Numbers<Held>(columns);
  std::vector<Order> points = Records<int32_t>(steps);
  Require(all.size() == points.size(), "paths differ in number");
  std::vector<Structure::Path> paths;
  for (size_t place = 0; place < all.size(); ++place) {
    Order latest(points[place].size());
    std::partial_sum(points[place].begin(), points[place].end(), latest.begin(),
                     [](int32_t a, int32_t b) { return std::max(a, b); });
    std::sort(points[place].begin(), points[place].end());
    const auto [number, begin, end] = all[place];
    paths.push_back({number, begin, end, std::move(points[place]), std::move(latest)});
  }
  return paths;
}

void Check(const Structure& its) {
  const size_t count = its.tenants.size();
  Require(its.held.size() == count, "tensors are held that are not there");
  Require(its.alike || its.live.size() == count, "tensors live that are not there");
  Require(its.straight || its.chains.size() == count, "blocks are around tensors that are not there");
  for (size_t i = 0; i < count; ++i) {
    for (const Held& one : its.held[i]) {
      Require(0 <= one.begin && one.begin < one.end && one.end <= its.columns, "a tensor is held outside of the call");
    }
    const int64_t column = its.tenants[i].column;
    Require(!its.straight || (its.held[i].size() == 1 && 0 <= column && column < its.held[i].front().end),
            "a tensor is held before it is made");
  }
  for (const Structure::Path& path : its.paths) {
    Require(0 <= path.offset && path.offset <= path.end && path.end <= its.columns &&
                path.sorted.size() <= static_cast<size_t>(path.end - path.offset),
            "a path has columns outside of the call");
  }
}

ColumnsRef MakeColumns(int64_t count, bool straight, bool all_known, bool alike, bool late, ffi::Bytes tenants,
                       ffi::Bytes held, ffi::Bytes live, ffi::Bytes chains, ffi::Bytes paths, ffi::Bytes steps) {
  const auto make = [&] {
    Structure its{straight,
                  all_known,
                  alike,
                  late,
                  static_cast<int32_t>(count),
                  TenantsOf(tenants),
                  Records<Held>(held),
                  Records<Interval>(live),
                  Records<Block>(chains),
                  PathsOf(paths, steps)};
    Check(its);
    return ColumnsRef(ffi::make_object<ColumnsObj>(std::move(its)));
  };
  return Translated(make, kWhat);
}

void CheckMembers(const CallColumns& columns, const Order& members) {
  const auto there = [&](int32_t i) { return 0 <= i && static_cast<size_t>(i) < columns.its().tenants.size(); };
  Require(std::all_of(members.begin(), members.end(), there), "a tensor is not there");
}

Groups GroupsOf(const CallColumns& columns, const ffi::Bytes& groups) {
  Groups found = Records<int32_t>(groups);
  for (const Order& group : found) {
    Require(!group.empty(), "a group is empty");
    CheckMembers(columns, group);
  }
  return found;
}

// How many there are in each group, and which, group by group.
ffi::Bytes BytesOf(const Groups& groups) {
  Order flat;
  for (const Order& group : groups) {
    flat.push_back(static_cast<int32_t>(group.size()));
    flat.insert(flat.end(), group.begin(), group.end());
  }
  return BytesOf(flat);
}

// Sums are `exact`, whatever their order, or else are made in the order of the tensors.
TimelineRef MakeTimeline(ColumnsRef columns, ffi::TensorView sizes, bool exact) {
  const auto make = [&] {
    const bool table = sizes.ndim() == 2 && sizes.size(1) > 0;
    Require(table && static_cast<size_t>(sizes.size(0)) == columns->columns.its().tenants.size(),
            "tensors differ in number from sizes");
    return TimelineRef(ffi::make_object<TimelineObj>(columns, Numbers(sizes), sizes.size(1), exact));
  };
  return Translated(make, kWhat);
}

void Load(TimelineRef memory, ffi::Bytes members, int64_t first, int64_t last, ffi::TensorView found) {
  const auto load = [&] {
    const CallTimeline& its = memory->memory;
    const Order all = Numbers<int32_t>(members);
    CheckMembers(its.columns(), all);
    Require(0 <= first && first <= last && last <= its.columns().its().columns, "columns that are not there");
    for (int32_t i : all) {
      for (const Held& one : its.columns().held(i)) Require(first <= one.begin && one.end <= last, "held elsewhere");
    }
    its.Load(all, first, last, ValuesOf(found, (last - first) * its.width()));
  };
  Translated(load, kWhat);
}

ffi::Bytes Height(TimelineRef memory, ffi::Bytes members) {
  const auto height = [&] {
    const Order all = Numbers<int32_t>(members);
    CheckMembers(memory->memory.columns(), all);
    return BytesOf(memory->memory.Height(all));
  };
  return Translated(height, kWhat);
}

void Arenas(TimelineRef memory, ffi::Bytes groups, ffi::Bytes lent, ffi::TensorView found) {
  const auto arenas = [&] {
    const CallTimeline& its = memory->memory;
    const Groups all = GroupsOf(its.columns(), groups);
    const Order flags = Numbers<int32_t>(lent);
    Require(flags.size() == all.size(), "groups differ in number");
    its.Arenas(all, std::vector<bool>(flags.begin(), flags.end()), ValuesOf(found, its.cells()));
  };
  Translated(arenas, kWhat);
}

void Peaks(TimelineRef memory, ffi::Bytes groups, ffi::Bytes lent, ffi::Bytes bounds, ffi::TensorView found) {
  const auto peaks = [&] {
    const CallTimeline& its = memory->memory;
    const Groups all = GroupsOf(its.columns(), groups);
    const Order flags = Numbers<int32_t>(lent), ends = Numbers<int32_t>(bounds);
    Require(flags.size() == all.size(), "groups differ in number");
    Require(its.exact(), "sums are rounded");
    Require(!ends.empty() && ends.front() == 0 && ends.back() == its.columns().its().columns &&
                std::is_sorted(ends.begin(), ends.end()),
            "paths do not lie one behind the other");
    its.Peaks(all, std::vector<bool>(flags.begin(), flags.end()), ends,
              ValuesOf(found, (ends.size() - 1) * its.width()));
  };
  Translated(peaks, kWhat);
}

// The groups, none where the limit is not kept or it is too much work.
ffi::Optional<ffi::Bytes> Fit(TimelineRef memory, ffi::Bytes shares, ffi::TensorView scale, ffi::TensorView room,
                              ffi::TensorView spare, ffi::Bytes groups, ffi::Bytes open, ffi::Bytes order,
                              bool counted, int64_t spread, int64_t most_tried, int64_t most_work, int64_t trial) {
  const auto fit = [&]() -> ffi::Optional<ffi::Bytes> {
    const CallTimeline& its = memory->memory;
    const Groups there = GroupsOf(its.columns(), groups);
    const Order opened = Numbers<int32_t>(open), entered = Numbers<int32_t>(order);
    Left left{Numbers<double>(shares), Numbers(scale), Numbers(room), Numbers(spare)};
    Require(opened.size() == there.size(), "groups differ in number");
    Require(left.shares.size() == its.columns().its().tenants.size(), "tensors differ in number from shares");
    Require(left.scale.size() == its.width(), "bindings differ in number");
    Require(left.room.size() == its.cells() && left.spare.size() == its.cells(),
            "columns differ in number from what is left");
    CheckMembers(its.columns(), entered);
    FirstFit found(its, std::move(left), {counted, static_cast<size_t>(spread), most_tried, most_work, trial});
    for (size_t place = 0; place < there.size(); ++place) found.Add(there[place], opened[place] != 0);
    if (!found.Enter(entered)) return std::nullopt;
    return BytesOf(found.Members());
  };
  return Translated(fit, kWhat);
}

// What is left of the groups.
ffi::Bytes Merge(TimelineRef memory, ffi::TensorView spare, ffi::Bytes groups, bool many, int64_t most_tried,
                 int64_t reach, int64_t most_together, int64_t most_work, int64_t trial) {
  const auto merge = [&] {
    const CallTimeline& its = memory->memory;
    const Bytes left = Numbers(spare);
    Require(left.size() == its.cells(), "columns differ in number from what is left");
    Merging merging(its, GroupsOf(its.columns(), groups), left,
                    {many, most_tried, reach, most_together, most_work, trial});
    return BytesOf(merging.Run());
  };
  return Translated(merge, kWhat);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<ColumnsObj>();
  ffi::reflection::ObjectDef<TimelineObj>();
  ffi::reflection::GlobalDef()
      .def("symalloc.arenas.columns", MakeColumns)
      .def("symalloc.arenas.timeline", MakeTimeline)
      .def("symalloc.arenas.load", Load)
      .def("symalloc.arenas.height", Height)
      .def("symalloc.arenas.arenas", Arenas)
      .def("symalloc.arenas.peaks", Peaks)
      .def("symalloc.arenas.first_fit", Fit)
      .def("symalloc.arenas.merge", Merge);
}

}  // namespace symalloc::arenas

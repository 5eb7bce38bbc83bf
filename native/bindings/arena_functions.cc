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

std::vector<Structure::Path> PathsOf(const ffi::Bytes& numbers, const ffi::Bytes& offsets, const ffi::Bytes& steps) {
  const Order all = Numbers<int32_t>(numbers), starts = Numbers<int32_t>(offsets);
  std::vector<Order> points = Records<int32_t>(steps);
  Require(all.size() == starts.size() && all.size() == points.size(), "paths differ in number");
  std::vector<Structure::Path> paths;
  for (size_t place = 0; place < all.size(); ++place) {
    Order latest(points[place].size());
    std::partial_sum(points[place].begin(), points[place].end(), latest.begin(),
                     [](int32_t a, int32_t b) { return std::max(a, b); });
    std::sort(points[place].begin(), points[place].end());
    paths.push_back({all[place], starts[place], std::move(points[place]), std::move(latest)});
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
    Require(0 <= path.offset && path.offset + static_cast<int64_t>(path.sorted.size()) <= its.columns,
            "a path has columns outside of the call");
  }
}

ColumnsRef MakeColumns(int64_t count, bool straight, bool all_known, bool alike, bool late, ffi::Bytes tenants,
                       ffi::Bytes held, ffi::Bytes live, ffi::Bytes chains, ffi::Bytes paths, ffi::Bytes offsets,
                       ffi::Bytes steps) {
  const auto make = [&] {
    Structure its{straight,
                  all_known,
                  alike,
                  late,
                  static_cast<int32_t>(count),
                  Numbers<Tenant>(tenants),
                  Records<Held>(held),
                  Records<Interval>(live),
                  Records<Block>(chains),
                  PathsOf(paths, offsets, steps)};
    Check(its);
    return ColumnsRef(ffi::make_object<ColumnsObj>(std::move(its)));
  };
  return Translated(make, kWhat);
}

void CheckMembers(const CallColumns& columns, const Order& members) {
  const auto there = [&](int32_t i) { return 0 <= i && static_cast<size_t>(i) < columns.its().tenants.size(); };
  Require(std::all_of(members.begin(), members.end(), there), "a tensor is not there");
}

std::vector<Order> GroupsOf(const CallColumns& columns, const ffi::Bytes& groups) {
  std::vector<Order> found = Records<int32_t>(groups);
  for (const Order& group : found) {
    Require(!group.empty(), "a group is empty");
    CheckMembers(columns, group);
  }
  return found;
}

// How many there are in each group, and which, group by group.
ffi::Bytes BytesOf(const std::vector<Order>& groups) {
  Order flat;
  for (const Order& group : groups) {
    flat.push_back(static_cast<int32_t>(group.size()));
    flat.insert(flat.end(), group.begin(), group.end());
  }
  return BytesOf(flat);
}

Sizes SizesOf(const CallColumns& columns, const ffi::Bytes& tenants, const ffi::Bytes& shares, const ffi::Bytes& scale,
              const ffi::Bytes& room, const ffi::Bytes& spare) {
  Sizes sizes{Numbers<double>(tenants), Numbers<double>(shares), Numbers<double>(scale), Numbers<double>(room),
              Numbers<double>(spare)};
  const size_t width = sizes.scale.size(), count = columns.its().tenants.size(), cells = columns.its().columns * width;
  Require(sizes.tenants.size() == count * width && sizes.shares.size() == count, "tensors differ in number from sizes");
  Require(sizes.room.size() == cells && sizes.spare.size() == cells, "columns differ in number from what is left");
  return sizes;
}

// The groups, none where the limit is not kept or it is too much work.
ffi::Optional<ffi::Bytes> Fit(ColumnsRef columns, ffi::Bytes tenants, ffi::Bytes shares, ffi::Bytes scale,
                              ffi::Bytes room, ffi::Bytes spare, ffi::Bytes groups, ffi::Bytes open, ffi::Bytes order,
                              bool counted, int64_t spread, int64_t most_tried, int64_t most_work, int64_t trial) {
  const auto fit = [&]() -> ffi::Optional<ffi::Bytes> {
    const CallColumns& its = columns->columns;
    const std::vector<Order> there = GroupsOf(its, groups);
    const Order opened = Numbers<int32_t>(open), entered = Numbers<int32_t>(order);
    Require(opened.size() == there.size(), "groups differ in number");
    CheckMembers(its, entered);
    FirstFit found(its, SizesOf(its, tenants, shares, scale, room, spare),
                   {counted, static_cast<size_t>(spread), most_tried, most_work, trial});
    for (size_t place = 0; place < there.size(); ++place) found.Add(there[place], opened[place] != 0);
    if (!found.Enter(entered)) return std::nullopt;
    return BytesOf(found.Groups());
  };
  return Translated(fit, kWhat);
}

// What is left of the groups, of which each has a row of `heights`.
ffi::Bytes Merge(ColumnsRef columns, ffi::Bytes sizes, ffi::Bytes spare, ffi::Bytes groups, ffi::Bytes heights,
                 bool many, int64_t most_tried, int64_t reach, int64_t most_together, int64_t most_work,
                 int64_t trial) {
  const auto merge = [&] {
    const CallColumns& its = columns->columns;
    const std::vector<Order> there = GroupsOf(its, groups);
    const Bytes rows = Numbers<double>(heights), tenants = Numbers<double>(sizes), left = Numbers<double>(spare);
    Require(!there.empty() && rows.size() % there.size() == 0, "groups differ in number from heights");
    const size_t width = rows.size() / there.size();
    Require(tenants.size() == its.its().tenants.size() * width, "tensors differ in number from sizes");
    Require(left.size() == its.its().columns * width, "columns differ in number from what is left");
    Merging merging(its, tenants, left, width, {many, most_tried, reach, most_together, most_work, trial});
    for (size_t place = 0; place < there.size(); ++place) {
      merging.Add(there[place], Bytes(rows.begin() + place * width, rows.begin() + (place + 1) * width));
    }
    return BytesOf(merging.Run());
  };
  return Translated(merge, kWhat);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<ColumnsObj>();
  ffi::reflection::GlobalDef()
      .def("symalloc.arenas.columns", MakeColumns)
      .def("symalloc.arenas.first_fit", Fit)
      .def("symalloc.arenas.merge", Merge);
}

}  // namespace symalloc::arenas

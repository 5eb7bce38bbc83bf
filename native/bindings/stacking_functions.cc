// The search for stackings' functions for tvm-ffi: symalloc/native/native_functions.pyi has their types.
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/numbers.h"
#include "bindings/translated.h"
#include "packer/local_search.h"

namespace symalloc::packer {

namespace ffi = tvm::ffi;

namespace {

class GraphObj : public ffi::Object {
 public:
  explicit GraphObj(Lists lists) : neighbours(std::move(lists)) {}

  const Lists neighbours;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.packer.Graph", GraphObj, ffi::Object);
};

class GraphRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(GraphRef, ffi::ObjectRef, GraphObj);
};

constexpr char kWhat[] = "the search";  // that memory is for

GraphRef MakeGraph(ffi::Bytes neighbours) {
  return Translated([&] { return GraphRef(ffi::make_object<GraphObj>(ListsOf(neighbours))); }, kWhat);
}

// The steps taken, the work, and an order at least as good as `order`.
ffi::Bytes Improve(GraphRef graph, ffi::Bytes order, ffi::Bytes columns, double target, int64_t steps, int64_t seed,
                   int64_t once, double left) {
  const auto improve = [&] {
    const size_t count = graph->neighbours.size();
    const Column all = Numbers<double>(columns);
    std::vector<Column> split;
    for (size_t start = 0; start < all.size(); start += count) {
      split.emplace_back(all.begin() + start, all.begin() + start + count);
    }
    LocalSearch search(graph->neighbours, split, static_cast<uint64_t>(seed), once, left);
    const Improved found = search.Improve(Numbers<int32_t>(order), target, steps);
    std::vector<int64_t> answer{found.steps, found.work};
    answer.insert(answer.end(), found.order.begin(), found.order.end());
    return BytesOf(answer);
  };
  return Translated(improve, kWhat);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<GraphObj>();
  ffi::reflection::GlobalDef().def("symalloc.packer.graph", MakeGraph).def("symalloc.packer.improve", Improve);
}

}  // namespace symalloc::packer

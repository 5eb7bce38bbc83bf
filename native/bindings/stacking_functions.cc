// The search for stackings' functions for tvm-ffi: symalloc/native/native_functions.pyi has their types.
#include <tvm/ffi/container/array.h>
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
#include "packer/stackings.h"
#include "packer/strips.h"

namespace symalloc::packer {

namespace ffi = tvm::ffi;

namespace {

class GraphObj : public ffi::Object {
 public:
  GraphObj(Lists lists, Changes lives) : neighbours(std::move(lists)), changes(std::move(lives)) {}

  const Lists neighbours;
  const Changes changes;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.packer.Graph", GraphObj, ffi::Object);
};

class GraphRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(GraphRef, ffi::ObjectRef, GraphObj);
};

constexpr char kWhat[] = "the search";  // that memory is for

GraphRef MakeGraph(ffi::Bytes neighbours, ffi::Bytes begins, ffi::Bytes ends) {
  const auto make = [&] {
    return GraphRef(ffi::make_object<GraphObj>(ListsOf(neighbours), Changes{ListsOf(begins), ListsOf(ends)}));
  };
  return Translated(make, kWhat);
}

ffi::Bytes Place(GraphRef graph, ffi::Bytes order, ffi::Bytes sizes, bool best_fit) {
  const auto place = [&] {
    return BytesOf(PlaceInOrder(Numbers<int32_t>(order), Numbers<int64_t>(sizes), graph->neighbours, best_fit));
  };
  return Translated(place, kWhat);
}

// How many buffers each lies on directly, and these; then the heights.
ffi::Array<ffi::Bytes> Pile(GraphRef graph, ffi::Bytes order, ffi::Bytes kinds, ffi::Bytes values, int64_t points) {
  const auto pile = [&] {
    const Order all = Numbers<int32_t>(order);
    const std::vector<Order> below = RestingOn(all, graph->changes);
    Order counts, items;
    for (const Order& list : below) {
      counts.push_back(static_cast<int32_t>(list.size()));
      items.insert(items.end(), list.begin(), list.end());
    }
    const Heights heights = HeightsOf(all, below, Numbers<int32_t>(kinds), Numbers<double>(values), points);
    return ffi::Array<ffi::Bytes>{BytesOf(counts), BytesOf(items), BytesOf(heights)};
  };
  return Translated(pile, kWhat);
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

ffi::Bytes Strips(ffi::Bytes begins, ffi::Bytes ends, ffi::Bytes allowed, ffi::Bytes kinds, ffi::Bytes sizes,
                  ffi::Bytes rooms, ffi::Bytes untils, ffi::Bytes heights, ffi::Bytes fixed, ffi::Bytes weights,
                  int64_t most) {
  const auto divide = [&] {
    const Column weighed = Numbers<double>(weights);
    const StripProblem problem{weighed.size(),           Numbers<int32_t>(begins), Numbers<int32_t>(ends),
                               Numbers<int32_t>(allowed), Numbers<int32_t>(kinds),  Numbers<double>(sizes),
                               Numbers<double>(rooms),    Numbers<int32_t>(untils), Numbers<double>(heights),
                               Numbers<int32_t>(fixed),   weighed};
    return BytesOf(DivideAmongStrips(problem, static_cast<size_t>(most)));
  };
  return Translated(divide, kWhat);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<GraphObj>();
  ffi::reflection::GlobalDef()
      .def("symalloc.packer.graph", MakeGraph)
      .def("symalloc.packer.place", Place)
      .def("symalloc.packer.pile", Pile)
      .def("symalloc.packer.improve", Improve)
      .def("symalloc.packer.strips", Strips);
}

}  // namespace symalloc::packer

#include "bindings/vm_shape_heap.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "bindings/vm_hook.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr const char* kStock = "vm.builtin.alloc_shape_heap";
constexpr size_t kMostKept = 64;  // heaps a thread

// Not of the pool: a heap that is kept would look like a leak there.
struct Cells {
  void AllocData(DLTensor* tensor) {
    tensor->data = std::aligned_alloc(64, (ffi::GetDataSize(*tensor) + 63) / 64 * 64);
    if (tensor->data == nullptr) throw ffi::Error("MemoryError", "no memory is left for a shape heap", "");
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

struct Kept {
  void* machine;
  int64_t cells;
  ffi::Tensor heap;
};

struct Heaps {
  std::vector<Kept> kept;
  size_t next = 0;  // to be replaced when all places are taken

  // A heap that nobody holds but we; nullptr where there is none.
  const ffi::Tensor* Unused(void* machine, int64_t cells) const {
    for (const Kept& each : kept) {
      if (each.machine == machine && each.cells == cells && each.heap.use_count() == 1) return &each.heap;
    }
    return nullptr;
  }

  void Keep(Kept fresh) {
    if (kept.size() < kMostKept) {
      kept.push_back(std::move(fresh));
    } else {
      kept[next++ % kMostKept] = std::move(fresh);
    }
  }
};

thread_local Heaps heaps;

struct ShapeHeapOf {
  ffi::Function stock;

  // (machine, cells)
  void operator()(const ffi::AnyView* args, int32_t count, ffi::Any* result) const {
    void* machine = args[0].cast<void*>();
    int64_t cells = args[1].cast<int64_t>();
    if (const ffi::Tensor* unused = heaps.Unused(machine, cells)) {
      *result = *unused;
      return;
    }
    stock.CallPacked(args, count, result);
    // only the machine knows its allocator: what it has made says whether that is a pool
    ffi::Tensor made = result->cast<ffi::Tensor>();
    if (!PoolOwns(made.data_ptr())) return;
    ffi::Tensor heap = ffi::Tensor::FromNDAlloc(Cells{}, {cells}, DLDataType{kDLInt, 64, 1}, DLDevice{kDLCPU, 0});
    *result = heap;
    heaps.Keep(Kept{machine, cells, std::move(heap)});
  }
};

}  // namespace

void KeepShapeHeaps() {
  ShapeHeapOf heap_of{ffi::Function::GetGlobalRequired(kStock)};
  ffi::Function::SetGlobal(kStock, ffi::Function::FromPacked(heap_of), true);
}

}  // namespace symalloc

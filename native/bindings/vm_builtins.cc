// Builtins of TVM's virtual machine that the pool replaces, for machines made from then on.
#include "bindings/vm_builtins.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include "bindings/tensor_placement.h"
#include "bindings/vm_allocator.h"
#include "bindings/vm_layout.h"
#include "bindings/vm_storages.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr const char* kAllocStorage = "vm.builtin.alloc_storage";
constexpr const char* kNamedStorage = "symalloc.pool.alloc_storage";

constexpr const char* kAllocTensor = "vm.builtin.alloc_tensor";
// the same, with the tensor's name as one more argument
constexpr const char* kNamedTensor = "symalloc.pool.alloc_tensor";

// TVM checks that a tensor on a storage ends within it, in unsigned arithmetic: a negative offset, and a byte count
// beyond 64 bits, pass.  This one checks exactly.
struct PlaceOnStorage {
  ffi::Function stock;

  // (storage, offset, shape, dtype[, name])
  void operator()(const ffi::AnyView* args, int32_t count, ffi::Any* result) const {
    const VmStorage* storage = count >= 4 ? AsStorage(args[0]) : nullptr;
    PoolObj* pool = storage != nullptr ? PoolOf(*storage) : nullptr;
    auto* shape = pool != nullptr ? args[2].as<ffi::ShapeObj>() : nullptr;
    if (shape == nullptr) {
      stock.CallPacked(args, count > 4 ? 4 : count, result);
      return;
    }
    const VmBuffer& buffer = storage->buffer;
    BackingMemory memory{buffer.data, static_cast<int64_t>(buffer.size), buffer.device, pool, args[0]};
    TensorRequest asked{args[1].cast<int64_t>(), {shape->data, shape->size}, args[3].cast<DLDataType>(), nullptr};
    if (count > 4) asked.name = &args[4];
    *result = PlaceTensor(memory, asked);
  }
};

constexpr const char* kAllocShapeHeap = "vm.builtin.alloc_shape_heap";
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

  // A heap that is referred to from here alone; nullptr where there is none.
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
    ForgetLastServed();
    stock.CallPacked(args, count, result);
    // only the machine knows its allocator: what it has made says whether that is a pool
    ffi::Tensor made = result->cast<ffi::Tensor>();
    if (made.data_ptr() != LastServed()) return;
    ffi::Tensor heap = ffi::Tensor::FromNDAlloc(Cells{}, {cells}, DLDataType{kDLInt, 64, 1}, DLDevice{kDLCPU, 0});
    *result = heap;
    heaps.Keep(Kept{machine, cells, std::move(heap)});
  }
};

template <typename Builtin>
ffi::Function Packed(ffi::Function stock) {
  return ffi::Function::FromPacked(Builtin{std::move(stock)});
}

// Registers what `make` makes of TVM's function `stock`.
void Register(const char* stock, ffi::Function (*make)(ffi::Function), std::initializer_list<const char*> names) {
  ffi::Function function = make(ffi::Function::GetGlobalRequired(stock));
  for (const char* name : names) ffi::Function::SetGlobal(name, function, true);
}

}  // namespace

void ReplaceBuiltins() {
  Register(kAllocStorage, AllocStorageOn, {kAllocStorage, kNamedStorage});
  Register(kAllocTensor, Packed<PlaceOnStorage>, {kAllocTensor, kNamedTensor});
  Register(kAllocShapeHeap, Packed<ShapeHeapOf>, {kAllocShapeHeap});
}

}  // namespace symalloc

// TVM checks that a tensor on a storage ends within it, in unsigned arithmetic: a negative offset, and a
// byte count beyond 64 bits, pass.  Its function that places tensors is replaced by one that checks exactly.
#include "bindings/vm_tensor.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/function.h>

#include "bindings/tensor_placement.h"
#include "bindings/vm_hook.h"
#include "bindings/vm_layout.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr const char* kStock = "vm.builtin.alloc_tensor";
// the same, with the tensor's name as one more argument
constexpr const char* kNamed = "symalloc.pool.alloc_tensor";

struct Place {
  ffi::Function stock;

  // (storage, offset, shape, dtype[, name])
  void operator()(const ffi::AnyView* args, int32_t count, ffi::Any* result) const {
    const VmStorage* storage = count >= 4 ? OfPool(args[0]) : nullptr;
    auto* shape = storage != nullptr ? args[2].as<ffi::ShapeObj>() : nullptr;
    if (shape == nullptr) {
      stock.CallPacked(args, count > 4 ? 4 : count, result);
      return;
    }
    const VmBuffer& buffer = storage->buffer;
    BackingMemory ground{buffer.data, static_cast<int64_t>(buffer.size), buffer.device, PoolOf(storage->allocator), args[0]};
    TensorRequest asked{args[1].cast<int64_t>(), {shape->data, shape->size}, args[3].cast<DLDataType>(), nullptr};
    if (count > 4) asked.name = &args[4];
    *result = PlaceTensor(ground, asked);
  }

  // The storage that is `value`, where a pool has served it; else nullptr.
  static const VmStorage* OfPool(const ffi::AnyView& value) {
    const VmStorage* storage = AsStorage(value);
    return storage != nullptr && IsPoolType(storage->buffer.alloc_type) ? storage : nullptr;
  }
};

}  // namespace

void CheckTensors() {
  Place place{ffi::Function::GetGlobalRequired(kStock)};
  for (const char* name : {kStock, kNamed}) {
    ffi::Function::SetGlobal(name, ffi::Function::FromPacked(place), true);
  }
}

}  // namespace symalloc

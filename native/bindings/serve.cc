// The pool for programs that take their memory from a function: `symalloc.pool.serve` registers two global
// functions, which need nothing of TVM but tvm-ffi's tensors.
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <string>

#include "bindings/pool_object.h"
#include "bindings/pool_use.h"
#include "bindings/tensor_placement.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

// name(bytes as a shape, tag, whether it escapes) and name.place(memory, offset, shape, dtype, tag)
void Serve(PoolRef pool, ffi::String name) {
  auto take = [pool, use = PoolUse::Of(pool)](const ffi::Shape& nbytes, const ffi::String& tag, bool escapes) {
    DLDataType byte{kDLUInt, 8, 1};
    std::string name(tag);
    if (Bytes(nbytes, byte) < 0) {
      throw ffi::Error("BoundsError", "`" + name + "` has a negative number of bytes, or one beyond 64 bits", "");
    }
    return ffi::Tensor::FromNDAlloc(PooledData{pool, name, escapes}, nbytes, byte, DLDevice{kDLCPU, 0});
  };
  auto place = [pool](const ffi::AnyView* args, int32_t count, ffi::Any* result) {
    if (count != 5) throw ffi::Error("TypeError", "expected memory, offset, shape, dtype and tag", "");
    auto memory = args[0].cast<ffi::Tensor>();
    auto shape = args[2].cast<ffi::Shape>();
    BackingMemory ground{memory.data_ptr(), static_cast<int64_t>(ffi::GetDataSize(*memory.GetDLTensorPtr())),
                  memory.device(), const_cast<PoolObj*>(pool.get()), args[0]};
    *result = PlaceTensor(ground, TensorRequest{args[1].cast<int64_t>(), shape, args[3].cast<DLDataType>(), &args[4]});
  };
  std::string called(name);
  ffi::Function::SetGlobal(called, ffi::Function::FromTyped(take), true);
  ffi::Function::SetGlobal(called + ".place", ffi::Function::FromPacked(place), true);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() { ffi::reflection::GlobalDef().def("symalloc.pool.serve", Serve); }

}  // namespace symalloc

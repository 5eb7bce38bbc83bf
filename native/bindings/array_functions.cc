// What is in arrays of tvm-ffi, for Python: symalloc/native/native_functions.pyi has its type.
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <vector>

namespace symalloc {

namespace ffi = tvm::ffi;

// Calls a function with the elements of an array: (function, array).
static void Unpack(ffi::PackedArgs args, ffi::Any* result) {
  auto function = args[0].cast<ffi::Function>();
  auto array = args[1].cast<ffi::Array<ffi::Any>>();
  std::vector<ffi::AnyView> elements(array.begin(), array.end());
  function.CallPacked(ffi::PackedArgs(elements.data(), static_cast<int32_t>(elements.size())), result);
}

TVM_FFI_STATIC_INIT_BLOCK() { ffi::reflection::GlobalDef().def_packed("symalloc.array.unpack", Unpack); }

}  // namespace symalloc

// Whether this TVM's storages are laid out as vm_layout.h says.
#include <tvm/ffi/any.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <string>

#include "bindings/vm_hook.h"
#include "bindings/vm_layout.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

// What of `value` is not as it must be for a storage of `nbytes` bytes that the pool of `type` has served;
// "" where all is.
ffi::String StorageFault(ffi::AnyView value, int64_t type, int64_t nbytes) {
  const VmStorage* storage = AsStorage(value);
  if (storage == nullptr) return "what a program allocates is no vm.Storage but " + value.GetTypeKey();
  const VmBuffer& buffer = storage->buffer;
  if (buffer.alloc_type != type) return "a storage does not hold the type of its allocator where 0.27's does";
  if (buffer.size != static_cast<size_t>(nbytes)) return "a storage does not hold its size where 0.27's does";
  if (buffer.device.device_type != kDLCPU || buffer.device.device_id != 0) {
    return "a storage does not hold its device where 0.27's does";
  }
  if (!PoolOwns(buffer.data)) return "a storage does not hold its memory where 0.27's does";
  if (!IsAllocator(storage->allocator)) return "a storage does not hold its allocator where 0.27's does";
  return "";
}

// What the allocator has reserved that `value`, a storage, comes from.
int64_t ReservedFor(ffi::AnyView value) {
  const VmStorage* storage = AsStorage(value);
  if (storage == nullptr) throw ffi::Error("TypeError", "expected a vm.Storage, not " + value.GetTypeKey(), "");
  return static_cast<int64_t>(storage->allocator->UsedMemory());
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("symalloc.pool.storage_fault", StorageFault)
      .def("symalloc.pool.reserved_for", ReservedFor);
}

}  // namespace symalloc

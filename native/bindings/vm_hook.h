// Giving the pool to TVM's virtual machine.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/string.h>

#include "bindings/pool_object.h"
#include "bindings/vm_layout.h"

namespace symalloc {

// The allocator type under which the virtual machine finds `pool`, for `memory_cfg={dev: type}`.  The pool has it for
// as long as it lives; then another pool may get it.  Throws a HookError where another library's hook is in the way.
int64_t VmType(PoolRef pool);

// Called by a pool that goes.
void ReleaseVmType(int type);

// Has `machine`, which was made with the type of `pool`, keep the pool.  Throws a HookError where it never asked for the
// pool.
void KeepPool(tvm::ffi::Module machine, PoolRef pool);

// The first difference between `value`, a storage of `nbytes` bytes that the pool of `type` has served, and
// vm_layout.h; "" where there is none.
tvm::ffi::String StorageFault(tvm::ffi::AnyView value, int64_t type, int64_t nbytes);

}  // namespace symalloc

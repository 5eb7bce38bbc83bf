// Storages for machines that keep the pool that serves them, made without asking TVM whose they are.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include "bindings/pool_object.h"

namespace symalloc {

// The use of `pool` by `machine`, which is to hold it as one of its imports.
tvm::ffi::Module UseByMachine(const tvm::ffi::Module& machine, PoolRef pool);

// vm.builtin.alloc_storage on top of TVM's function `stock`: (machine, shape, device index, dtype, scope), and perhaps
// tag and whether its tensors may outlive the call.
tvm::ffi::Function AllocStorageOn(tvm::ffi::Function stock);

}  // namespace symalloc

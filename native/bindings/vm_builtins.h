// Builtins of TVM's virtual machine that the pool replaces, for machines made from then on.
#pragma once

namespace symalloc {

// Registers them.  Every tensor on a storage of a pool is checked exactly; those on other storages are left to TVM.
// Machines on a pool keep their shape heaps, the tensors that hold sizes during a call, from call to call.
// Storages of machines that keep their pools are made here, those of others by TVM.
// `symalloc.pool.alloc_storage` and `symalloc.pool.alloc_tensor` take a name as a further argument.
void ReplaceBuiltins();

}  // namespace symalloc

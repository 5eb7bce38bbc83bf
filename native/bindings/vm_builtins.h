// Builtins of TVM's virtual machine that the pool replaces, for machines made from then on.
#pragma once

#include <string>

namespace symalloc {

// A program's hint for the storage that it allocates.
struct AllocationHint {
  std::string tag;
  bool escapes = false;  // its tensors may outlive the call
};

// The hint for the storage that the calling thread allocates now; nullptr: none.
const AllocationHint* CurrentHint();

// Registers them.  Every tensor on a storage of a pool is checked exactly; those on other storages are left to TVM.
// Machines on a pool keep their shape heaps, the tensors that hold sizes during a call, from call to call.
// `symalloc.pool.alloc_storage` and `symalloc.pool.alloc_tensor` take a hint, and a name, as further arguments.
void ReplaceBuiltins();

}  // namespace symalloc

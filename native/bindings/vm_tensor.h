// Tensors on storages of the virtual machine, with exact bounds.
#pragma once

namespace symalloc {

// Checks every tensor that any virtual machine made from now on places on a storage of a pool; those on
// other storages are left to TVM.
void CheckTensors();

}  // namespace symalloc

// Giving the pool to TVM's virtual machine.
#pragma once

#include "bindings/pool_object.h"
#include "bindings/vm_layout.h"

namespace symalloc {

// The allocator type under which the virtual machine finds `pool`, for `memory_cfg={dev: type}`.  The pool has it for
// as long as it lives; then another pool may get it.  Throws a HookError where another library's hook is in the way.
int64_t VmType(PoolRef pool);

// Called by a pool that goes.
void ReleaseVmType(int type);

// The pool that has served `storage`; nullptr where that was another library.
PoolObj* PoolOf(const VmStorage& storage);

// The memory that the calling thread's last allocation from a pool's allocator has got; nullptr: none since `Forget`.
const void* LastServed();
void ForgetLastServed();

}  // namespace symalloc

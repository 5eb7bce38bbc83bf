// Giving the pool to TVM's virtual machine.
#pragma once

#include "bindings/pool_object.h"
#include "bindings/vm_layout.h"

namespace symalloc {

// The allocator type under which the virtual machine finds `pool` from now on, for `memory_cfg={dev: type}`.
// The pool stays for as long as the process.
int64_t VmType(PoolRef pool);

// The pool of an allocator that was made for a type of `VmType`.
const PoolRef& PoolOf(const VmAllocator* allocator);

// True where `type` is that of a pool: other libraries bring allocators of their own.
bool IsPoolType(int type);

// True where `data` is memory of a pool that has a type; wrong for pools in guard mode.
bool PoolOwns(const void* data);

}  // namespace symalloc

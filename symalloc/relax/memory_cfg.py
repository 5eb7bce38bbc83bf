"""Giving a pool to TVM's virtual machine, through the allocator hook of the stock wheel.

TVM 0.27 asks a global function for allocators of types that it does not know.  Nothing documents that hook,
so it is tried out before a pool is handed to a program.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from symalloc.pool.native import NativePool
from symalloc.relax.tvm_error import error_text

__all__ = ["HookError", "memory_cfg"]

TRIED = 4096  # bytes


class HookError(RuntimeError):
    """This version of TVM does not take a foreign allocator."""


def memory_cfg(pool: NativePool) -> dict[Any, int]:
    """What `relax.VirtualMachine(..., memory_cfg=…)` needs so that its storages come from `pool`.

        machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=symalloc.memory_cfg(pool))

    Storages have the bytes that the program asks for and no more, at multiples of 64.  The pool serves
    cpu(0), and any number of virtual machines and threads, for as long as the process lives.

    Raises HookError where this version of TVM takes no foreign allocator.  What the pool refuses reaches
    the caller of the machine as OutOfMemoryError.
    """
    _try_hook()
    return {tvm.cpu(): _vm_type(pool)}


def _vm_type(pool: NativePool) -> int:
    number: int = tvm_ffi.get_global_func("symalloc.pool.vm_type")(pool.object)
    return number


@cache
def _try_hook() -> None:
    """Runs a program that allocates one storage, and looks whether a pool has served it."""
    pool = NativePool()
    try:
        machine = relax.VirtualMachine(
            relax.build(_one_storage(), target="llvm"), tvm.cpu(), memory_cfg={tvm.cpu(): _vm_type(pool)}
        )
        storage = machine["main"]()
    except Exception as error:  # TVM raises several kinds
        raise HookError(
            f"this TVM ({tvm.__version__}) takes no foreign allocator: {error_text(error)}"
        ) from None
    held = pool.statistics()
    del storage, machine
    if (held.live, held.allocs) != (TRIED, 1):
        raise HookError(
            f"this TVM ({tvm.__version__}) takes a foreign allocator, but does not allocate from it; "
            "the pool works with 0.27"
        )


def _one_storage() -> tvm.IRModule:
    """A program that returns a storage of `TRIED` bytes."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        storage = builder.emit(relax.op.memory.alloc_storage(relax.ShapeExpr([TRIED]), 0, "global", "uint8"))
        builder.emit_func_output(storage)
    return builder.get()

"""Giving a pool to TVM's virtual machine, through the allocator hook of the stock wheel.

TVM 0.27 asks a global function for allocators of types that it does not know.  Nothing documents that hook,
nor how its storages are laid out, so both are tried out before a pool is handed to a program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from symalloc.errors import RunError, shown
from symalloc.native.native_functions import pool_functions
from symalloc.pool.native_pool import NativePool
from symalloc.pool.pool_errors import PoolUsageError
from symalloc.relax.tvm_error import error_text

TRIED = 4096  # bytes
KNOWN = "0.27"  # the version whose layout is the one in native/bindings/vm_layout.h
_WAYS_IN = ("_get_output", "_invoke_closure", "_invoke_stateful", "_save_function", "_set_input")
LATER = "load the library that has registered `DeviceAllocator.` before the first symalloc.memory_cfg"


@tvm_ffi.register_error("HookError")
class HookError(RunError, RuntimeError):
    """This version of TVM does not take a foreign allocator."""


class MachineBusyError(RunError, RuntimeError):
    """A thread calls a machine that another thread is in."""


class PoolType(int):
    """The type of the allocators of one pool, which it keeps."""

    pool: NativePool


def memory_cfg(pool: NativePool) -> dict[object, int]:
    """The `memory_cfg` with which a `relax.VirtualMachine` takes its storages from `pool`.

        machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=symalloc.memory_cfg(pool))

    Storages have the bytes that the program asks for and no more, at multiples of 64.  The pool serves
    cpu(0), and any number of virtual machines and threads.  The result keeps it, and so does each machine
    that `relax.VirtualMachine` makes with it; whoever makes a machine in another way keeps the pool.

    Raises HookError where this version of TVM is not known, takes no foreign allocator, or lays out its
    storages in another way.  What the pool refuses reaches the caller of the machine as OutOfMemoryError or
    BoundsError.  Raises PoolUsageError where `pool` is none.
    """
    if not isinstance(pool, NativePool):
        raise PoolUsageError(
            f"memory_cfg takes a pool, not {shown(pool)}: symalloc.memory_cfg(symalloc.Pool())"
        )
    if pool.closed:
        raise PoolUsageError("the pool is closed")
    _require_hook(str(tvm.__version__))
    _keep_pools()
    kind = PoolType(pool_functions.vm_type(pool.object))
    kind.pool = pool
    return {tvm.cpu(): kind}


@cache
def _keep_pools() -> None:
    """Have machines that are made from now on keep the pools they are given, of which TVM does not tell."""
    setup = relax.VirtualMachine._setup_device

    @wraps(setup)
    def keeping(self: relax.VirtualMachine, dev: object, memory_cfg: object) -> None:
        given = memory_cfg.values() if isinstance(memory_cfg, dict) else ()
        pools = [kind.pool for kind in given if isinstance(kind, PoolType)]
        try:
            setup(self, dev, memory_cfg)
        except Exception as error:
            if pools and "Unknown allocator type" in str(error):
                raise HookError(f"TVM no longer asks symalloc for allocators; {LATER}") from error
            raise
        for pool in pools:
            pool_functions.keep_pool(self.module, pool.object)
        self._symalloc_pools = pools  # with their callbacks
        self._symalloc_thread = RLock()
        for way in _WAYS_IN if pools else ():
            setattr(self, way, _by_one_thread(self._symalloc_thread, getattr(self, way)))

    def called(self: relax.VirtualMachine, name: str) -> Callable[..., object]:
        function = found(self, name)
        mine = getattr(self, "_symalloc_pools", ())
        return _by_one_thread(self._symalloc_thread, function) if mine else function

    found = relax.VirtualMachine.__getitem__
    relax.VirtualMachine._setup_device, relax.VirtualMachine.__getitem__ = keeping, called


def _by_one_thread(lock: Any, function: Callable[..., object]) -> Callable[..., object]:
    """`function` of a machine, which TVM's threads may not enter together: the second one gets an error."""

    def call(*arguments: object) -> object:
        if not lock.acquire(blocking=False):
            raise MachineBusyError("another thread is in this machine; make one for each thread")
        try:
            return function(*arguments)
        finally:
            lock.release()

    return call


def try_hook() -> str:
    """Try the hook of this TVM on a program; return what is wrong with it, "" where nothing is.

    Where storages are laid out in another way this may end the process.
    """
    pool = NativePool()
    try:
        number = pool_functions.vm_type(pool.object)
        machine, storage = _one_storage({tvm.cpu(): number})
    except Exception as error:  # TVM raises several kinds
        return f"takes no foreign allocator: {error_text(error)}"
    fault = pool_functions.storage_fault(storage, number, TRIED)
    if fault:
        return f"takes a foreign allocator, but {fault}"
    held = pool.statistics().live
    del storage, machine
    if (held, pool.statistics().live) != (TRIED, 0):
        return "takes a foreign allocator, but does not allocate from it, or does not free there"
    return ""


@cache
def _require_hook(version: str) -> None:
    fault = try_hook() if version.startswith(f"{KNOWN}.") else "may lay its objects out in another way"
    if fault:
        raise HookError(f"this TVM ({version}) {fault}; the pool works with {KNOWN}")


def reserved_by_tvm() -> int:
    """Bytes that TVM's own pooled allocator for cpu(0) has reserved in this process, a page for the question.

    It gives nothing back: they are its peak.  Raises HookError.
    """
    _require_hook(str(tvm.__version__))
    return pool_functions.reserved_for(_one_storage("pooled")[1])


def _one_storage(given: object) -> tuple[relax.VirtualMachine, object]:
    """A machine with the `memory_cfg` that is given, and a storage of TRIED bytes that it has made."""
    builder, nbytes = relax.BlockBuilder(), tvm.tirx.Var("nbytes", "int64")
    with builder.function("main", [relax.Var("shape", relax.ShapeType([nbytes]))]):
        storage = relax.op.memory.alloc_storage(relax.ShapeExpr([nbytes]), 0, "global", "uint8")
        builder.emit_func_output(builder.emit(storage))
    program = relax.build(builder.get(), target="llvm")
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=given)
    return machine, machine["main"](tvm.runtime.ShapeTuple([TRIED]))

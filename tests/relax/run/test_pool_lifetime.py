"""A pool lives as long as its object, its machines and its blocks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from symalloc.pool.instrumented_pool import InstrumentedPool, LeakWarning
from symalloc.pool.pool_errors import PoolUsageError
from symalloc.relax.run.machine import HookError, memory_cfg
from tests.pool.processes import survives
from tests.relax.built import addresses, machine_on

MIB = 2**20


@pytest.fixture
def pool() -> InstrumentedPool:
    return InstrumentedPool(capacity=2**36)


def _call(machine: Any, n: int = 3_000) -> Any:
    return machine["main"](tvm.runtime.tensor(np.ones((n, 8), "float32")))


def test_pools_in_turn_leave_nothing(program: Any) -> None:
    def turn() -> int:
        pool = InstrumentedPool(capacity=2**36)
        given = memory_cfg(pool)
        _call(relax.VirtualMachine(program, tvm.cpu(), memory_cfg=given))
        (kind,) = given.values()
        return int(kind)  # itself it keeps the pool

    turn()
    before = addresses()
    kinds = {turn() for _ in range(30)}
    assert addresses() - before < 32
    assert len(kinds) == 1, "a type serves one pool after the other"


def test_pools_that_live_at_once_have_types_and_memory_of_their_own(program: Any) -> None:
    before = addresses()
    pools = [InstrumentedPool(limit=16 * MIB) for _ in range(24)]
    results = [_call(machine_on(program, pool), n) for n, pool in enumerate(pools, 1)]
    assert len({next(iter(memory_cfg(pool).values())) for pool in pools}) == len(pools)
    assert [pool.statistics().live for pool in pools] == [result.numpy().nbytes for result in results]
    del pools, results
    assert addresses() - before < 4


def test_a_function_of_a_machine_and_a_result_keep_their_pool(program: Any) -> None:
    before = addresses()
    machine = machine_on(program, InstrumentedPool(capacity=2**36))
    main = machine["main"]
    del machine
    result = _call({"main": main})
    expected = result.numpy()
    del main
    other = machine_on(program, InstrumentedPool())
    _call(other, 100)
    assert np.array_equal(result.numpy(), expected)
    assert addresses() - before > 60
    del result, other
    assert addresses() - before < 32


def test_a_tensor_keeps_no_more_than_itself(pool: InstrumentedPool) -> None:
    """Once nobody can allocate, what is cached goes back, and everything with the last block."""
    tensors = [pool.empty((16 * MIB,), "uint8") for _ in range(4)]
    for tensor in tensors:
        np.from_dlpack(tensor)[:] = 1
    kept = tensors[2]
    del tensors, tensor
    with pytest.warns(LeakWarning):
        pool.close()
    assert (pool.statistics().used, pool.statistics().reserved) == (16 * MIB, 16 * MIB)
    assert np.from_dlpack(kept)[5] == 1
    del kept
    assert (pool.statistics().used, pool.statistics().reserved) == (0, 0)


def test_a_closed_pool_serves_its_machines_until_they_go(program: Any, pool: InstrumentedPool) -> None:
    machine = machine_on(program, pool)
    _call(machine)
    with pytest.warns(LeakWarning):
        pool.close()
    result = _call(machine)
    with pytest.raises(PoolUsageError, match="closed"):
        pool.alloc(64)
    del machine
    assert pool.statistics().used == pool.statistics().live == result.numpy().nbytes
    with pytest.raises(PoolUsageError, match="closed"):
        memory_cfg(pool)


def test_a_hook_that_comes_later_must_hand_on(program: Any) -> None:
    def among_others() -> None:
        first, others = InstrumentedPool(), [InstrumentedPool() for _ in range(64)]
        _call(machine_on(program, first))
        ours = tvm_ffi.get_global_func("DeviceAllocator.")
        calls = list[int]()

        def handing_on(device: object, kind: int) -> object:
            calls.append(kind)
            return ours(device, kind)

        tvm_ffi.register_global_func("DeviceAllocator.", handing_on, override=True)
        for pool in others:
            memory_cfg(pool)  # the last ones have types that no pool has had
        second = others.pop()
        _call(machine_on(program, second))
        assert second.statistics().allocs > 0
        assert int(memory_cfg(second)[tvm.cpu()]) in calls
        tvm_ffi.register_global_func("DeviceAllocator.", lambda device, kind: None, override=True)
        with pytest.raises(HookError, match="no longer asks"):
            machine_on(program, others.pop())
        _call(machine_on(program, first))

    survives(among_others)


BEFORE = """
import ctypes, tvm, tvm_ffi, symalloc
asked = []
def theirs(device, kind):
    asked.append(kind)
    return ctypes.c_void_p(4096) if kind == 5300 else None
tvm_ffi.register_global_func("DeviceAllocator.", theirs)
from symalloc.native.native_functions import pool_functions
first, second = symalloc.Pool(), symalloc.Pool()
print([pool_functions.vm_type(pool.object) for pool in (first, second, first)], asked)
hook = tvm_ffi.get_global_func("DeviceAllocator.")
print(hook(tvm.cpu(), 5300).value, hook(tvm.cpu(), 77), asked)
"""


def test_types_of_other_libraries_are_left_to_them() -> None:
    done = subprocess.run([sys.executable, "-c", BEFORE], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == (
        "",
        "[5301, 5302, 5301] [5300, 5301, 5302]\n4096 c_void_p(None) [5300, 5301, 5302, 77]\n",
    )


@pytest.mark.parametrize("given", (None, 1, "pooled"))
def test_what_is_no_pool_is_told(given: Any) -> None:
    with pytest.raises(PoolUsageError, match="memory_cfg takes a pool, not "):
        memory_cfg(given)

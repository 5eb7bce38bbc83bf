"""Storages of machines that keep their pools: made without TVM, and never for another machine."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tvm
from tvm import relax

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BoundsError, OutOfMemoryError, PoolUsageError
from symalloc.relax.run.machine import memory_cfg
from tests.pool.processes import survives
from tests.relax.built import addresses, machine_on

MACHINES = 40


@pytest.fixture(scope="module")
def storage() -> Any:
    """A program that answers with a storage of a shape of bytes."""
    return relax.build(_reserving("return storage"), "llvm")


def _reserving(then: str) -> tvm.IRModule:
    """A module that reserves a storage of a shape of bytes, and what it does then."""
    return tvm.script.from_source(f"""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(given: R.Shape(["rows", "columns"])):
        rows, columns = T.int64(), T.int64()
        storage = R.vm.alloc_storage(R.shape([rows, columns]), R.prim_value(0), R.dtype("uint8"))
        {then}
""")


def _asked(machine: relax.VirtualMachine, rows: int, columns: int = 1) -> Any:
    return machine["main"](tvm.runtime.ShapeTuple((rows, columns)))


COUNTED = """
import symalloc, tvm, tvm_ffi
from tvm import relax
NAME = "vm.builtin.alloc_storage"
stock, asked = tvm_ffi.get_global_func(NAME), []
def counting(*args):
    asked.append(args)
    return stock(*args)
tvm_ffi.register_global_func(NAME, counting, override=True)
builder = relax.BlockBuilder()
with builder.function("main", []):
    make = lambda: relax.op.memory.alloc_storage(relax.ShapeExpr([64]), 0, "global", "uint8")
    storages = [builder.emit(make()) for _ in range(10)]
    builder.emit_func_output(relax.Tuple(storages))
program = relax.build(builder.get(), "llvm")
pool = symalloc.Pool()
machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=symalloc.memory_cfg(pool))
asked.clear()
results = [machine["main"]() for _ in range(3)]
print(len(asked), pool.statistics().allocs - pool.statistics().frees)
other = relax.VirtualMachine(program, tvm.cpu(), memory_cfg="pooled")
asked.clear()
results = [other["main"]() for _ in range(3)]
print(len(asked))
"""


def test_tvm_is_asked_for_the_first_one_only() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "1 30\n30\n")


def test_a_machine_in_place_of_another_has_its_own_memory(storage: Any) -> None:
    """Machines come to lie where others lay; what is known of those is not taken for theirs."""
    first, second = pools = InstrumentedPool(), InstrumentedPool()
    for _ in range(MACHINES):
        for pool in (first, None, second):
            machine = machine_on(storage, pool)
            for _ in range(2):
                held = _asked(machine, 64)
                assert [each.statistics().live for each in pools] == [64 * (pool is each) for each in pools]
            del machine, held


def test_what_a_machine_held_may_outlive_it(storage: Any) -> None:
    pool = InstrumentedPool()

    def held() -> Iterator[Any]:
        machine = machine_on(storage, pool)
        _asked(machine, 64)
        yield from machine.module.imports

    kept = list(held())  # among them what keeps the pool
    assert any(each.kind == "symalloc.pool" for each in kept)
    before = pool.statistics().allocs
    others = [machine_on(storage, None) for _ in range(MACHINES)]
    for other in others:
        _asked(other, 64)
        _asked(other, 64)
    assert pool.statistics().allocs == before
    kept.clear()
    assert pool.statistics().live == 0


def test_tvm_is_asked_for_each_of_a_machine_that_does_not_keep_its_pool() -> None:
    def outlive() -> None:
        builder = relax.BlockBuilder()
        with builder.function("main", []):  # sizes that are known need no shape heap
            made = relax.op.memory.alloc_storage(relax.ShapeExpr([64]), 0, "global", "uint8")
            builder.emit_func_output(builder.emit(made))
        kind = memory_cfg(pool := InstrumentedPool())[tvm.cpu()]
        machine = relax.build(builder.get(), "llvm").mod["vm_load_executable"]()
        machine["vm_initialization"](1, 0, int(kind))
        for _ in range(3):
            machine["main"]()
        del pool, kind
        with pytest.raises(PoolUsageError, match="the pool of this machine is gone"):
            machine["main"]()

    survives(outlive)


def test_a_callback_may_let_the_pool_go() -> None:
    def let_go() -> None:
        pool = InstrumentedPool(limit=2**20, capacity=2**38)
        keeping_none = _reserving("_ = R.vm.kill_object(storage)\n        return R.shape([rows])")
        machine = machine_on(relax.build(keeping_none, "llvm"), pool)
        for _ in range(2):
            _asked(machine, 64)
        held = [pool]
        left = []

        def drop(*_: object) -> bool:
            machine.module.clear_imports()
            machine._symalloc_pools.clear()
            held.clear()
            gc.collect()
            left.append(addresses())
            return False

        pool.on_oom(drop)
        del pool
        with pytest.raises((OutOfMemoryError, PoolUsageError)):
            _asked(machine, 2**21)
        assert left[0] - addresses() >= 200, "it goes with the call that it serves"

    survives(let_go)


@pytest.mark.parametrize("shape", ((2**62, 4), (-1, 1), (2**32, 2**32)))
def test_a_size_that_wraps_is_refused(storage: Any, shape: tuple[int, int]) -> None:
    pool = InstrumentedPool()
    machine = machine_on(storage, pool)
    _asked(machine, 64)
    with pytest.raises(BoundsError, match=r"a storage, .* has a negative size, or more bytes than 64 bits"):
        _asked(machine, *shape)
    assert pool.statistics().allocs - pool.statistics().frees == 1, "what the last call has left"

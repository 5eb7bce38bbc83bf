"""Stock Relax programs whose storages come from a pool."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.pool.errors import BoundsError, OutOfMemoryError
from symalloc.pool.native import NativePool
from symalloc.pool.policy import Options
from symalloc.pool.replay import replay
from symalloc.relax.memory_cfg import memory_cfg
from symalloc.relax.run_load import load_one
from tests.pool.library import need_native

ISSUE = Path(__file__).parents[2] / "examples" / "issue_17322.py"
SIZES = (1, 700, 3, 0, 5000, 64, 701)


@pytest.fixture(scope="module", autouse=True)
def _native() -> None:
    need_native()


@pytest.fixture(scope="module")
def program() -> Any:
    module = load_one(Path(__file__).parent / "modules_to_plan.py", module="Chain")
    return relax.build(module, target="llvm")


def _machine(program: Any, pool: NativePool | None) -> relax.VirtualMachine:
    return relax.VirtualMachine(program, tvm.cpu(), memory_cfg=None if pool is None else memory_cfg(pool))


def _input(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 8)).astype("float32")


def _call(machine: relax.VirtualMachine, x: np.ndarray) -> np.ndarray:
    result: np.ndarray = machine["main"](tvm.runtime.tensor(x)).numpy()
    return result


def test_outputs_are_those_of_the_stock_allocator(program: Any) -> None:
    pool = NativePool()
    ours, stock = _machine(program, pool), _machine(program, None)
    for seed in range(3):
        for n in SIZES:
            x = _input(n, seed)
            assert np.array_equal(_call(ours, x), _call(stock, x))
    assert pool.statistics().allocs >= 3 * len(SIZES)


def test_memory_comes_back_with_the_machine(program: Any) -> None:
    pool = NativePool()
    machine = _machine(program, pool)
    for n in SIZES:
        _call(machine, _input(n))
    del machine
    assert pool.statistics().live == 0
    pool.trim()
    assert pool.reserved == 0


def test_an_output_may_outlive_the_machine(program: Any) -> None:
    pool = NativePool()
    machine = _machine(program, pool)
    x = _input(4)
    result = machine["main"](tvm.runtime.tensor(x))
    expected = result.numpy().copy()
    del machine
    pool.alloc(4 * 8 * 4)
    assert np.array_equal(result.numpy(), expected)


def test_a_storage_ends_with_its_last_byte() -> None:
    """apache/tvm#17322: the stock allocator, whose storages end with a page, accepts m up to 1024."""
    machine = _machine(relax.build(load_one(ISSUE), target="llvm"), NativePool())
    for m in (0, 1, 4):
        assert len(machine["main"](tvm.runtime.tensor(np.zeros(m, "float32"))).numpy()) == m
    for m in (5, 1024):
        with pytest.raises(BoundsError, match="a storage of 16 bytes"):
            machine["main"](tvm.runtime.tensor(np.zeros(m, "float32")))


def test_the_limit_reaches_the_caller(program: Any) -> None:
    pool = NativePool(Options(limit=2**20))
    machine = _machine(program, pool)
    _call(machine, _input(1000))
    with pytest.raises(OutOfMemoryError, match="do not fit under the limit of 1048576"):
        _call(machine, _input(100_000))
    _call(machine, _input(1000))


def test_a_machine_for_each_thread_on_one_pool(program: Any) -> None:
    pool, wrong = NativePool(), list[int]()

    def serve(seed: int) -> None:
        machine, stock = _machine(program, pool), _machine(program, None)
        for n in SIZES * 3:
            x = _input(n, seed)
            if not np.array_equal(_call(machine, x), _call(stock, x)):
                wrong.append(seed)

    threads = [Thread(target=serve, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.statistics().live == 0


def test_pools_are_told_apart(program: Any) -> None:
    first, second = NativePool(), NativePool()
    assert memory_cfg(first) == memory_cfg(first) != memory_cfg(second)
    _call(_machine(program, second), _input(8))
    assert (first.statistics().allocs, second.statistics().allocs > 0) == (0, True)


def test_a_run_is_recorded_and_can_be_replayed(program: Any) -> None:
    pool = NativePool()
    machine = _machine(program, pool)
    pool.start_recording()
    for n in SIZES:
        _call(machine, _input(n))
    del machine
    trace = pool.stop_recording()
    assert 8 * 4 * max(SIZES) <= trace.peak_live <= 5 * 8 * 4 * max(SIZES)
    result = replay(trace, "pool", Options())
    assert (result.left, result.peak_live) == (0, trace.peak_live)

"""Plans run on several threads: the same bits, memory as planned, nothing left where a call ends early."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import reduce
from random import Random
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import symalloc
from symalloc import RunError
from symalloc.planner.memory_plan import PlanOptions
from symalloc.program.packed_contracts import contracts
from symalloc.relax.files.load import lower_or_refuse
from symalloc.relax.run import machine
from symalloc.relax.run.runner import Runner
from tests.pool.processes import until_asleep
from tests.relax.built import CALLERS, EFFECTS, MODULES, graph
from tests.scale import pairs

CASES = {"Branch": {"n": 9, "m": 4}, "Calls": {"n": 5}, "Late": {"n": 6, "m": 3}, "Constants": {"n": 4}}
HOW: list[dict[str, Any]] = [
    {"order": "dag"},
    {"order": "lanes", "guards": "native"},
    {"guards": "fallback"},
    {"arena": "caller", "results": "caller"},
    {"plan": "none"},
]


@pytest.mark.parametrize(("name", "how"), pairs(CASES, HOW), ids=str)
def test_threads_give_the_same_bits(name: str, how: dict[str, Any]) -> None:
    pool = symalloc.Pool()
    at = CASES[name]
    found = symalloc.run(getattr(CALLERS, name), at, function="main", check=True, workers=3, pool=pool, **how)
    assert found.checked and found.difference is None
    assert pool.statistics().live == 0


def test_shapes_that_hold_a_choice_run_in_parts() -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        n = x.ty.shape[0]
        twice = emit(relax.op.concat([x, x], axis=0))
        front = emit(relax.op.strided_slice(twice, [0], [0], [n]))
        back = emit(relax.op.strided_slice(twice, [0], [n], [n + n - 1]))
        return relax.Tuple([emit(relax.op.nn.relu(front)), emit(relax.op.nn.silu(back))])

    runner = Runner(graph(write, x=("n", 8)), workers=2, options=PlanOptions(order="dag"))
    for rows in (1, 7, 40):
        assert runner.run({"n": rows}, check=True).difference is None


def test_a_plan_of_tvm_is_right_with_fences_and_refused_where_its_storage_leaves_a_branch() -> None:
    how: dict[str, Any] = {"function": "main", "check": True, "workers": 2, "plan": "tvm"}
    for name in ("Calls", "Late"):
        assert symalloc.run(getattr(CALLERS, name), CASES[name], **how).difference is None
    leaving = relax.transform.StaticPlanBlockMemory()(lower_or_refuse(CALLERS.Branch, "llvm", "default"))
    with pytest.raises(RunError, match="`storage` leaves the branch that makes it"):
        symalloc.run(leaving, CASES["Branch"], function="main", workers=2, plan="none")


@pytest.mark.parametrize("module", [CALLERS.Branch, MODULES.Nested], ids=["branch", "nested"])
def test_a_plan_of_tvm_that_reads_memory_of_another_branch_is_refused(module: Any) -> None:
    at = {"n": 3} | ({"m": 4} if module is CALLERS.Branch else {})
    for how in ({"plan": "tvm"}, {"plan": "tvm", "workers": 2}):
        with pytest.raises(RunError, match="where another branch of an If makes memory: Var storage"):
            symalloc.run(module, at, function="main", **how)
    assert symalloc.run(module, at, function="main", workers=2, check=True).difference is None


def test_state_is_changed_in_the_order_of_the_text() -> None:
    runner = Runner(EFFECTS.Cache, workers=3, options=PlanOptions(order="dag"))
    for seed in range(3):
        assert runner.run({}, check=True, seed=seed).difference is None


Kernel = Callable[[Any, Any], None]


@pytest.fixture
def kernel() -> Iterator[Callable[[Kernel], None]]:
    """Says what the kernel of `wide` does."""

    def register(does: Kernel) -> None:
        tvm.register_global_func("tests.dispatcher.kernel", does, override=True)

    with contracts({}):
        symalloc.packed_function("tests.dispatcher.kernel", defines=[1], takes="nothing")
        yield register
    register(copy)


def copy(x: Any, y: Any) -> None:
    np.from_dlpack(y)[:] = np.from_dlpack(x)


def wide(chains: int = 4, depth: int = 1) -> tvm.IRModule:
    """Chains side by side, each with kernels in Python."""

    def write(emit: Any, x: relax.Var) -> relax.Expr:
        ends = []
        for index in range(chains):
            one = emit(relax.op.add(x, relax.const(float(index), "float32")))
            for _ in range(depth):
                one = emit(relax.op.call_dps_packed("tests.dispatcher.kernel", (one,), x.ty))
                one = emit(relax.op.nn.softmax(one))
            ends.append(one)
        return reduce(lambda total, end: emit(relax.op.subtract(total, end)), ends)

    return graph(write, x=("n", 16))


@pytest.mark.parametrize("order", ["total", "dag"])
def test_kernels_that_take_their_time_give_the_same_bits(order: Any, kernel: Any) -> None:
    random, at_once, most = Random(0), 0, 0

    def slow(x: Any, y: Any) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(random.random() / 500)
        copy(x, y)
        at_once -= 1

    kernel(slow)
    pool = symalloc.Pool()
    runner = Runner(wide(5, 2), workers=3, pool=pool, options=PlanOptions(order=order))
    for seed in range(8):
        found = runner.run({"n": 40}, check=seed in (0, 7), seed=seed)
        assert found.difference is None and found.pool is not None and found.arena_bytes is not None
        tables = 4 * 64  # of sizes, one a machine
        assert found.pool.peak_live <= found.arena_bytes + found.output_bytes + tables
        assert pool.statistics().live == 0
    assert most > 1 or order == "total", "they overlap"


@pytest.mark.parametrize("together", [1, 2])
def test_kernels_that_fail_leave_nothing(kernel: Any, together: int) -> None:
    fails, meet = [False], Barrier(together)

    def planted(x: Any, y: Any) -> None:
        if fails[0]:
            meet.wait(60)
            raise ValueError("planted")
        copy(x, y)

    kernel(planted)
    pool = symalloc.Pool()
    runner = Runner(wide(), workers=2, pool=pool, options=PlanOptions(order="dag"))
    for fails[0] in (*[True] * 40, False):  # others end behind the one that fails, now and then
        if not fails[0]:
            assert runner.run({"n": 50}, check=True).difference is None
        else:
            with pytest.raises(RunError, match="planted") as error:
                runner.run({"n": 50})
            assert error.value  # which is held while the pool is asked
        assert pool.statistics().live == 0


def test_what_the_pool_refuses_leaves_nothing(kernel: Any) -> None:
    kernel(copy)
    pool = symalloc.Pool(limit=1 << 20, page=4096)
    runner = Runner(wide(), workers=2, pool=pool, options=PlanOptions(order="dag"))
    with pytest.raises(symalloc.SymallocError, match="limit"):
        runner.run({"n": 50_000})
    assert pool.statistics().live == 0
    assert runner.run({"n": 60}, check=True).difference is None


def test_kernels_under_way_end_however_often_a_call_is_interrupted(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, told, looks = [True], threading.Semaphore(0), threading.Semaphore(0)
    main = threading.main_thread()

    def look(seconds: float) -> None:
        looks.release()
        time.sleep(seconds)

    def handle(*_: object) -> None:
        told.release()
        raise KeyboardInterrupt

    def interrupted(x: Any, y: Any) -> None:
        for number in range(4 if first and first.pop() else 0):
            if number < 2:
                until_asleep(main)
            assert number < 2 or (looks.acquire(timeout=60) and looks.acquire(timeout=60))
            signal.pthread_kill(main.ident or 0, signal.SIGINT)
            assert told.acquire(timeout=60)
        copy(x, y)

    kernel(interrupted)
    pool = symalloc.Pool()
    runner = Runner(wide(), workers=2, pool=pool)
    monkeypatch.setattr(machine, "sleep", look)
    before = signal.signal(signal.SIGINT, handle)
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run({"n": 50})
    finally:
        signal.signal(signal.SIGINT, before)
    assert pool.statistics().live == 0
    assert runner.run({"n": 50}, check=True).difference is None

"""Stock Relax programs whose storages come from a pool."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

import symalloc
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.relax.run.machine import HookError, MachineBusyError, _require_hook, memory_cfg, try_hook
from tests.pool.processes import at_once, died
from tests.relax.built import MODULES, machine_on


def _input(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 8)).astype("float32")


def _call(machine: relax.VirtualMachine, x: np.ndarray) -> Any:
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def test_a_second_thread_gets_an_error_where_one_is_in_a_machine(program: Any) -> None:
    machine = machine_on(program, InstrumentedPool())
    function, x = machine["main"], tvm.runtime.tensor(_input(5000))
    busy: list[MachineBusyError] = []

    def call() -> None:
        for _ in range(40):
            try:
                function(x)
            except MachineBusyError as error:
                busy.append(error)

    at_once(*[call] * 4)
    assert len(busy) < 160 and all("make one for each thread" in str(error) for error in busy)
    machine.set_input("main", x)
    machine.invoke_stateful("main")
    held = len(busy)

    def enter() -> None:
        call()
        for way in (machine.invoke_stateful, machine.get_outputs, lambda name: machine.set_input(name, x)):
            with pytest.raises(MachineBusyError):
                way("main")

    with machine._symalloc_thread, ThreadPoolExecutor(1) as other:
        other.submit(enter).result()
        assert len(busy) == held + 40
        machine.invoke_stateful("main")
        assert np.array_equal(_call(machine, _input(3)), _call(machine, _input(3)))  # the thread itself may


def test_a_machine_is_charged_to_a_session_and_waits_for_memory(program: Any) -> None:
    pool = InstrumentedPool(wait=60.0)
    machine = machine_on(program, pool)
    with pool.session("call") as session:
        expected = _call(machine, _input(4))
        kept = pool.alloc(64)
    assert session.statistics().allocs > 1
    session.limit = session.statistics().live
    asked = Event()

    def free() -> None:
        asked.wait(60.0)
        kept.free()
        session.limit = None

    pool.on_oom(lambda *_: asked.set())  # type: ignore[arg-type, return-value]
    helper = Thread(target=free)
    helper.start()
    with session:
        assert np.array_equal(_call(machine, _input(4)), expected)
    helper.join()
    assert asked.is_set() and session.statistics().refused == 0


def test_a_planned_call_allocates_its_arena_and_its_output_and_no_more_pages_once_warm() -> None:
    pool = InstrumentedPool()
    machine = machine_on(relax.build(symalloc.plan(MODULES.Chain).module, "llvm"), pool)
    for n in range(50):  # the first call may take a shape heap, too
        _call(machine, _input(n))
    warm = pool.statistics()
    for n in range(50):
        _call(machine, _input(n))
    now = pool.statistics()
    assert now.allocs - warm.allocs == 2 * 50
    assert (now.commits, now.decommits, now.reserved) == (warm.commits, warm.decommits, warm.reserved)


CALLED = """
@I.ir_module
class Module:
    @R.function
    def inner(y: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        return R.broadcast_to(R.sum(y), R.shape([n, 8]))

    @R.function
    def main(x: R.Tensor(("m", 8), "float32")):
        twice = Module.inner(R.concat([x, x]))
        return R.multiply(x, R.sum(twice))
"""


def test_a_function_that_calls_another_has_a_shape_heap_for_each_call() -> None:
    """Each activation reads its sizes again behind the inner call."""
    program = relax.build(tvm.script.from_source(CALLED), "llvm")
    ours, stock = machine_on(program, InstrumentedPool()), machine_on(program, None)
    for n in (1, 2, 7) * 2:
        assert np.array_equal(_call(ours, _input(n)), _call(stock, _input(n)))


# -- the hook is tried out ----------------------------------------------------------------------------------


def test_the_layout_of_a_storage_is_compared() -> None:
    assert try_hook() == ""
    fault = tvm_ffi.get_global_func("symalloc.pool.storage_fault")
    number = memory_cfg(InstrumentedPool())[tvm.cpu()]
    assert "is no vm.Storage but ffi.Shape" in fault(tvm.runtime.ShapeTuple([1]), number, 1)
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        storage = relax.op.memory.alloc_storage(relax.ShapeExpr([4096]), 0, "global", "uint8")
        builder.emit_func_output(builder.emit(storage))
    stock = machine_on(relax.build(builder.get(), "llvm"), None)["main"]()
    assert "does not hold the type of its allocator" in fault(stock, number, 4096)
    assert "does not hold its size" in fault(stock, 2, 4095)
    assert "does not hold its allocator" in fault(stock, 2, 4096)


def test_a_version_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm, "__version__", "99.0")
    with pytest.raises(HookError, match=r"this TVM \(99\.0\) may lay .*; the pool works with 0\.27"):
        memory_cfg(InstrumentedPool())


def test_a_tvm_without_the_hook_is_told_of() -> None:
    """The hook's name, taken by a function that knows no pools."""

    def without() -> None:
        pools = [InstrumentedPool() for _ in range(64)]  # as many as use up the types that are made
        given = [memory_cfg(pool) for pool in pools]
        tvm_ffi.register_global_func("DeviceAllocator.", lambda device, kind: None, override=True)
        said = try_hook()
        assert said.startswith("takes no foreign allocator: ") and "another library has registered" in said
        with pytest.raises(HookError, match="before the first"):
            memory_cfg(InstrumentedPool())
        assert given == [memory_cfg(pool) for pool in pools]
        with pytest.raises(HookError, match=r"this TVM \(0\.27\.99\) takes no .*; the pool works with 0\.27"):
            _require_hook("0.27.99")

    assert died(without)[0] == 0

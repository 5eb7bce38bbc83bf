"""Programs that take their memory from a function, with nothing but tvm-ffi between them and the pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import transform

from symalloc.pool.core.pool_errors import BoundsError, OutOfMemoryError
from symalloc.pool.observing.instrumented_pool import InstrumentedPool
from symalloc.relax.files.load import load_one
from symalloc.relax.passes.externalize_storage import ExternalizeStorage, register_pool
from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from symalloc.relax.passes.plan_pass import PlanMemory
from tests.pool.library import need_native

FOLDER = Path(__file__).parents[1]
ISSUE = FOLDER.parents[1] / "examples" / "issue_17322.py"
NAME = "symalloc.tests.take"


@pytest.fixture(scope="module", autouse=True)
def _native() -> None:
    need_native()


def _machine(module: Any) -> relax.VirtualMachine:
    """A stock machine on TVM's own allocators."""
    built = relax.build(module, "llvm", relax_pipeline=finishing_pipeline("llvm"))
    return relax.VirtualMachine(built, tvm.cpu())


def _taking(module: Any) -> relax.VirtualMachine:
    return _machine(ExternalizeStorage(NAME)(transform.LowerAllocTensor()(module)))


@pytest.mark.parametrize("planned", (False, True))
@pytest.mark.parametrize("guard", (False, True))
def test_results_are_those_of_the_stock_allocator(planned: bool, guard: bool) -> None:
    module = lower(load_one(FOLDER / "modules_to_plan.py", module="Branches"), "llvm")
    module = PlanMemory()(module) if planned else module
    pool = InstrumentedPool(guard=guard)
    register_pool(pool, NAME)
    ours, stock = _taking(module), _machine(module)
    for n in (0, 1, 5, 33):
        x = tvm.runtime.tensor(np.random.default_rng(n).standard_normal((n, 8)).astype("float32"))
        for condition in (False, True):
            c = tvm.runtime.tensor(np.array(condition))
            assert np.array_equal(ours["main"](c, x).numpy(), stock["main"](c, x).numpy())
    pool.check()
    del ours
    assert pool.statistics().allocs > 0 and pool.statistics().live == 0


def test_a_planned_call_takes_its_arena_and_its_output() -> None:
    module = lower(load_one(FOLDER / "modules_to_plan.py", module="Chain"), "llvm")
    pool = InstrumentedPool()
    register_pool(pool, NAME)
    machine = _taking(PlanMemory()(module))
    result = machine["main"](tvm.runtime.tensor(np.ones((5, 8), "float32")))
    assert pool.statistics().allocs == 2
    assert pool.holders() == [("main.gv2 float32[n, 8] (subtract)", 5 * 8 * 4)]
    del machine
    assert result.numpy().shape == (5, 8)


def test_bounds_are_exact_and_limits_hold() -> None:
    register_pool(InstrumentedPool(), NAME)
    machine = _machine(ExternalizeStorage(NAME)(load_one(ISSUE)))
    assert len(machine["main"](tvm.runtime.tensor(np.zeros(4, "float32"))).numpy()) == 4
    refused = r"tensor `main.alloc \(fill, .*\)`, float32\[5\], needs 20 bytes at offset 0"
    with pytest.raises(BoundsError, match=refused):
        machine["main"](tvm.runtime.tensor(np.zeros(5, "float32")))
    register_pool(InstrumentedPool(limit=2**16), NAME)
    chain = _taking(lower(load_one(FOLDER / "modules_to_plan.py", module="Chain"), "llvm"))
    with pytest.raises(OutOfMemoryError, match=r"main\.a float32"):
        chain["main"](tvm.runtime.tensor(np.ones((1000, 8), "float32")))


@pytest.mark.parametrize(
    ("offset", "shape", "problem"),
    (
        (-1, (16,), "in front of it"),
        (-(2**63), (16,), "in front of it"),
        (0, (17,), "needs 17 bytes"),
        (1, (16,), "end 1 bytes behind"),
        (2**63 - 1, (16,), "needs 16 bytes"),
        (0, (-1,), "negative extent"),
        (0, (2**62, 4), "64 bits"),
    ),
)
def test_what_lies_outside_is_refused(offset: int, shape: tuple[int, ...], problem: str) -> None:
    register_pool(InstrumentedPool(), NAME)
    memory = tvm_ffi.get_global_func(NAME)(tvm_ffi.Shape((16,)), "memory", False)
    place = tvm_ffi.get_global_func(f"{NAME}.place")
    assert place(memory, 0, tvm_ffi.Shape((4, 4)), tvm_ffi.dtype("uint8"), "inside").shape == (4, 4)
    with pytest.raises(BoundsError, match=problem):
        place(memory, offset, tvm_ffi.Shape(shape), tvm_ffi.dtype("uint8"), "outside")


def test_a_function_of_ones_own_will_do() -> None:
    taken: list[str] = []

    def take(shape: Any, tag: str, escapes: int) -> Any:
        taken.append(f"{tag} {escapes}")
        return tvm_ffi.from_dlpack(np.empty((*shape, 64), "uint8"))

    tvm_ffi.register_global_func("symalloc.tests.mine", take, override=True)
    register_pool(InstrumentedPool(), NAME)
    place = tvm_ffi.get_global_func(f"{NAME}.place")
    tvm_ffi.register_global_func("symalloc.tests.mine.place", place, override=True)
    module = transform.LowerAllocTensor()(
        lower(load_one(FOLDER / "modules_to_plan.py", module="Chain"), "llvm")
    )
    x = tvm.runtime.tensor(np.ones((3, 8), "float32"))
    ours = _machine(ExternalizeStorage("symalloc.tests.mine")(module))["main"](x).numpy()
    assert np.array_equal(ours, _machine(module)["main"](x).numpy())
    assert taken[-1] == "main.gv2 float32[n, 8] (subtract) 1" and taken[0].endswith(" 0")

"""What the counting allocator counts, and the floor of a run, against figures worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812

from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from tests.models.execution import run
from tests.models.measure import ALLOCATOR, compiler, floor, floors, load, measured
from tests.models.pooled import FREE, differing
from tests.models.zoo import MODELS
from tests.pool.processes import died
from tests.scale import NIGHTLY, pairs, tries

ROW = 64 * 4


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):  # noqa: N805
        a = R.exp(x)
        b = R.add(a, x)
        c = R.multiply(a, b)
        d = R.add(c, c)
        return d  # noqa: RET504


@I.ir_module
class Parted:
    @R.function
    def main(
        c: R.Tensor((), "bool"),  # noqa: N805
        x: R.Tensor(("n", 64), "float32"),
    ) -> R.Tensor(("n", 64), "float32"):
        a = R.exp(x)
        b = R.add(x, x)
        d = R.multiply(b, b)
        if c:
            e = R.add(a, d)
            f = R.multiply(e, d)
        else:
            f = R.exp(d)
        return f


@pytest.fixture(scope="module")
def machine() -> relax.VirtualMachine:
    """The unplanned chain on a machine that counts."""
    if compiler() is None:
        pytest.skip("measuring needs a C++ compiler")
    load()
    return unplanned(Chain)


def unplanned(module: tvm.IRModule) -> relax.VirtualMachine:
    executable = relax.build(lower(module, "llvm"), "llvm", relax_pipeline=finishing_pipeline("llvm"))
    return relax.VirtualMachine(executable, tvm.cpu(), memory_cfg={tvm.cpu(): ALLOCATOR})


def argument(rows: int) -> Any:
    return tvm.runtime.tensor(np.ones((rows, 64), "float32"))


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_a_run_is_measured(machine: relax.VirtualMachine, rows: int) -> None:
    for _ in range(2):  # the result of the first call is kept until the second one ends
        x = argument(rows)
        result, found = measured(lambda x=x: machine["main"](x))
    assert result.shape == (rows, 64)
    assert (found.allocations, found.outputs) == (4, 1)
    assert found.planned == found.total == 3 * ROW * rows  # a, b and c, while c is computed


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_the_floor_of_a_run(machine: relax.VirtualMachine, rows: int) -> None:
    found = floor(machine, "main", [argument(rows)])
    assert found.planned == found.total == 3 * ROW * rows  # the result comes when a and x are not needed


def test_what_the_other_side_of_an_if_needs_is_needed_until_there(machine: relax.VirtualMachine) -> None:
    parted = unplanned(Parted)
    paths = [[tvm.runtime.tensor(np.array(c)), argument(5)] for c in (True, False)]
    alone = [floor(parted, "main", path).planned for path in paths]
    assert alone == [3 * ROW * 5, 2 * ROW * 5]  # a, b, d; without the then-side nothing needs a behind exp
    assert [found.planned for found in floors(parted, "main", paths)] == [3 * ROW * 5, 3 * ROW * 5]
    _, held = measured(lambda: parted["main"](*paths[1]))
    assert held.planned == 3 * ROW * 5


def test_what_is_freed_holds_no_number(machine: relax.VirtualMachine) -> None:
    machine["main"](argument(5))
    assert not np.isnan(machine["main"](argument(5)).numpy()).any()


CALLS = tries(6, 12)


@pytest.mark.parametrize(
    ("name", "planned"),
    pairs(FREE if NIGHTLY else ("llama_grouped_queries", "gru", "nested_tuples"), (True, False)),
)
def test_results_are_those_of_the_stock_allocator(name: str, planned: bool) -> None:
    assert list(differing(name, CALLS, planned=planned)) == []


def test_results_are_those_of_the_stock_allocator_in_guard_mode() -> None:
    assert list(differing("mlp_dynamic_batch", CALLS, planned=True, guard=True)) == []


@pytest.mark.parametrize(
    "name",
    MODELS if NIGHTLY else ["mlp_dynamic_batch", "llama_decode_concat", "nested_tuples", "unique"],
)
def test_tvm_alone_runs_them(name: str) -> None:
    """Some plans of TVM's crash; that is known of these models."""
    status, said = died(lambda: run(MODELS[name]))
    assert status == 0 or MODELS[name].fault, said

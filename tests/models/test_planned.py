"""Models compiled with PlanMemory: the same results, at the floor, and clean to the linter.

`benchmarks/plan_models.py` does the same with more bindings, the larger models and optimised kernels.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache

import pytest
import tvm
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import symalloc
from symalloc.relax.extract import kernel_body
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.measure import compiler, load
from tests.models.planned import CASES, Case, Row, Variants, calls, compare, difference
from tests.scale import NIGHTLY, part

pytestmark = pytest.mark.slow

LIMIT = 1.05  # of the floor
# LLVM takes half of the time otherwise; bits and bytes are compared between modules built alike
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})
# `benchmarks/plan_models.py` runs all, the nightly tests all but the largest
LONG = frozenset({"bert", "inception", "llama_decode", "unet_shallow"})
SMALL = [case for case in CASES.values() if not case.large]
QUICK = SMALL if NIGHTLY else part((case for case in SMALL if case.name not in LONG), 5)


@pytest.fixture(scope="module", autouse=True)
def counting() -> None:
    if compiler() is None:
        pytest.skip("measuring needs a C++ compiler")
    load()


@cache
def variants(name: str) -> Variants:
    return Variants(CASES[name], TARGET)


@cache
def row(name: str, index: int) -> Row:
    """TVM's own plan is built for what is built quickly."""
    case = CASES[name]
    return compare(variants(name), case.bindings[index], theirs=case.function == "main")


def runs() -> Iterator[tuple[Case, int]]:
    """An odd extent, and one beyond what is declared, for which the plan is built again without checks; of
    the networks only the latter.
    """
    for case in QUICK:
        if case.function == "main" or not case.declared:
            yield case, 1
        yield case, len(case.bindings) - 1


def identifier(value: object) -> str | None:
    return value.name if isinstance(value, Case) else None


@pytest.mark.parametrize(("case", "index"), list(runs()), ids=identifier)
def test_a_planned_model_runs_at_the_floor(case: Case, index: int) -> None:
    found = row(case.name, index)
    assert found.difference is None
    fallbacks = variants(case.name).planned.plans[case.function].fallbacks
    assert found.ratio <= max([LIMIT, *(fallback.ratio for fallback in fallbacks)])
    if found.against:
        assert found.against[0] <= 1


@I.ir_module
class Cached:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tuple(R.Any, R.Shape(["n", 8])):  # noqa: N805
        n = T.int64()
        e = R.exp(x)
        rows = R.add(e, e)
        full = R.shape([n, 8])
        cache = R.call_packed(
            "vm.builtin.attention_kv_cache_create", rows, full, R.prim_value(0), ty_args=R.Any
        )
        return (cache, full)


def test_results_that_are_no_tensors_are_compared() -> None:
    case = Case(name="cached", build=lambda: Cached, bindings=({"n": 3},))
    (call,) = calls(made := Variants(case, TARGET), case.bindings[0])
    found = call.on(made.ours)
    assert [array.shape for array in found.arrays] == [(2,), (3, 8)]  # the shape, and what was passed
    assert difference(found, call.on(made.unplanned)) is None


@pytest.mark.parametrize("case", QUICK, ids=identifier)
def test_a_planned_model_is_clean(case: Case) -> None:
    for module in (variants(case.name).planned.module, variants(case.name).settled):
        report = symalloc.lint(module, stage="as-is")
        assert [f"{d.rule}: {d.message}" for d in report if d.severity != "note"] == []


def test_planning_makes_no_cycles() -> None:
    """The collector passes over what planning makes: what only it could free would pile up."""
    modules = [variants(case.name).lowered for case in QUICK]
    kernel_body._read.cache_clear()
    gc.collect()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        for module in modules:
            plan_lowered(module)
        gc.collect()
        modules_of = (
            str(getattr(found, "__module__", "")) for found in gc.garbage
        )  # tvm_ffi makes some, too
        assert not [name for name in modules_of if name.startswith("symalloc")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("case", [case for case in SMALL if case.theirs], ids=identifier)
def test_what_tvm_plans_wrongly_is_an_error(case: Case) -> None:
    report = symalloc.lint(case.build(), stage="planned")
    assert {d.rule for d in report if d.severity == "error"} & {"SYM106", "SYM204"}


def test_every_model_has_six_bindings_and_some_beyond_what_is_declared() -> None:
    declared = [case for case in CASES.values() if case.declared]
    assert len(declared) >= 5
    assert all(any(map(case.beyond, case.bindings)) for case in declared)
    for case in CASES.values():
        assert len({tuple(sorted(binding.items())) for binding in case.bindings}) == len(case.bindings) >= 6

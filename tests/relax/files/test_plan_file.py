"""The report of a file's plan tells what a call holds that falls back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import from_source

from symalloc.analysis.timeline import Reservation, Timeline
from symalloc.planner.memory_plan import GuardKind, PlanOptions
from symalloc.relax.files.plan_file import compare_with_tvm, plan_file, plan_module, tables_of_sizes
from symalloc.relax.files.requests import PlanRequest
from symalloc.relax.passes.pipeline import finishing_pipeline
from tests.models.measure import ALLOCATOR, load, measured
from tests.relax.built import WORKSPACES, lowered

ATTENTION = Path(__file__).parents[3] / "examples" / "attention.py"


@pytest.mark.parametrize("guards", ["fallback", "assert"])
def test_what_a_fallback_holds_counts_where_a_guard_refuses_and_nowhere_else(guards: GuardKind) -> None:
    """Constants for 512 rows are held at each n up to there, and beyond it what the unplanned call needs."""
    found = plan_file(
        PlanRequest(path=ATTENTION, plan=PlanOptions(bounds="reserve", guards=guards)),
        form=None,
        samples=({"n": 1}, {"n": 512}, {"n": 600}),
        comparison=None,
    )
    (report,) = found.reports
    few, bound, beyond = report.samples
    assert few.call is not None and few.call_unplanned is not None and few.call > 1000 * few.call_unplanned
    assert bound.call == bound.call_unplanned and bound.call is not None and few.call <= bound.call
    assert beyond.refused and beyond.falls_back is (guards == "fallback")
    assert (beyond.call == beyond.call_unplanned) is beyond.falls_back
    assert not any(s.refused or s.falls_back for s in (few, bound))


NESTED = """# script
@I.ir_module
class Module:
    @R.function(private=True)
    def inner(x: R.Tensor(("m", "k"), "float32")) -> R.Tensor(("m", "k"), "float32"):
        a = R.exp(x)
        b = R.reshape(a, R.shape([m * k]))
        return R.reshape(R.exp(b), R.shape([m, k]))

    @R.function
    def main(x: R.Tensor(("n", "k"), "float32")) -> R.Tensor(("n", "k"), "float32"):
        y = Module.inner(x)
        return Module.inner(R.add(y, x))

    @R.function
    def still(x: R.Tensor((8, 4), "float32")) -> R.Tensor((8, 4), "float32"):
        return R.exp(R.exp(x))
"""


@pytest.mark.parametrize("guards", ["assert", "native", "fallback"])
def test_the_table_of_sizes_is_what_the_machine_takes(guards: GuardKind) -> None:
    load()
    module = from_source(NESTED)
    planned = plan_module(module, options=PlanOptions(guards=guards))
    said = tables_of_sizes(planned.module, "llvm")
    program = relax.build(planned.module, "llvm", relax_pipeline=finishing_pipeline("llvm"))
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg={tvm.cpu(): ALLOCATOR})
    given = tvm.runtime.tensor(np.ones((8, 4), "float32"))
    for name in ("main", "still"):
        _, usage = measured(lambda name=name: machine[name](given))  # type: ignore[misc]
        taken = -(-usage.table // 64) * 64
        assert said[name] >= taken and (taken == 0) is (name == "still")
        assert said[name] == taken or guards == "fallback"  # which of the two runs is not known


def own(plan: Timeline, *kinds: str) -> list[Reservation]:
    """What the function itself takes, results apart."""
    return [one for one in plan.taken() if one.why in kinds and one.frame.caller is None]


def peak(plan: Timeline, **binding: int) -> int:
    """The most that is held at once, results apart."""
    return plan.only(lambda one: one.why != "result").peak(binding) or 0


def test_bounds_are_kept_and_taken_away() -> None:
    module = lowered("Attention", WORKSPACES)
    before = module.script()
    (found,) = compare_with_tvm(module).values()
    assert module.script() == before
    assert found.bounded is not None
    bounded, unbounded = (
        [peak(plan, b=2, n=n) for n in (4, 512)] for plan in (found.bounded, found.unbounded)
    )
    assert bounded[0] == bounded[1] >= unbounded[1]
    # the scores and the softmax have other sizes than what dies before them
    assert unbounded[0] < bounded[0] // 100


def test_without_declared_bounds_there_is_one_plan() -> None:
    (found,) = compare_with_tvm(lowered("Chain")).values()
    assert found.bounded is None
    plan = found.unbounded
    assert [str(held.size) for held in own(plan, "storage")] == ["32*n", "32*n"]
    assert (own(plan, "tensor", "packed"), peak(plan, n=3)) == ([], 256)


def test_what_tvm_leaves_by_itself_counts() -> None:
    """Values that cross an If get memory of their own from TVM."""
    (found,) = compare_with_tvm(lowered("Branches")).values()
    plan = found.unbounded
    storages, fresh = own(plan, "storage"), own(plan, "tensor", "packed")
    assert len(fresh) >= 2
    peaks = [peak(p, n=5) for p in (plan.only(lambda one: one not in fresh), plan)]
    assert peaks[0] < peaks[1] <= 2 * 64 * len((*storages, *fresh)) * 5


def test_what_called_functions_reserve_counts() -> None:
    found = compare_with_tvm(lowered("Calls", WORKSPACES))
    assert [str(held.size) for held in own(found["layer"].unbounded, "storage")] == ["64*m"]
    within = [one for one in found["main"].unbounded.taken() if one.frame.name == "layer"]
    assert [str(one.size) for one in within if one.why == "storage"] == ["64*n", "128*n"]


def test_a_pass_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    @tvm.transform.module_pass(opt_level=0, name="Failing")
    def fail(_: tvm.IRModule, __: tvm.transform.PassContext) -> tvm.IRModule:
        raise ValueError("no plan today")

    monkeypatch.setattr(relax.transform, "StaticPlanBlockMemory", lambda: fail)
    (found,) = compare_with_tvm(lowered("Chain")).values()
    assert "no plan today" in (found.unbounded.problem or "")

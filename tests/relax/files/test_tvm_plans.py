from __future__ import annotations

from pathlib import Path

import tvm
from tvm.relax import transform

from symalloc.analysis.timeline import Reservation, Timeline
from symalloc.relax.files.load import load_one
from symalloc.relax.files.plan_file import compare_with_tvm
from symalloc.relax.passes.pipeline import lower
from tests.relax.built import lowered

SCRIPT = Path(__file__).parents[1] / "modules_with_workspace.py"


def own(plan: Timeline, *kinds: str) -> list[Reservation]:
    """What the function itself takes, results apart."""
    return [one for one in plan.taken() if one.why in kinds and one.frame.caller is None]


def peak(plan: Timeline, **binding: int) -> int:
    """The most that is held at once, results apart."""
    return plan.only(lambda one: one.why != "result").peak(binding) or 0


def test_bounds_are_kept_and_taken_away() -> None:
    (found,) = compare_with_tvm(lower(load_one(SCRIPT, module="Attention"), "llvm")).values()
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
    found = compare_with_tvm(lower(load_one(SCRIPT, module="Calls"), "llvm"))
    assert [str(held.size) for held in own(found["layer"].unbounded, "storage")] == ["64*m"]
    within = [one for one in found["main"].unbounded.taken() if one.frame.name == "layer"]
    assert [str(one.size) for one in within if one.why == "storage"] == ["64*n", "128*n"]


def test_a_module_is_not_changed() -> None:
    module = lower(load_one(SCRIPT, module="Attention"), "llvm")
    before = module.script()
    compare_with_tvm(module)
    assert module.script() == before


def test_a_pass_that_fails_is_told() -> None:
    @tvm.transform.module_pass(opt_level=0, name="Failing")
    def fail(_: tvm.IRModule, __: tvm.transform.PassContext) -> tvm.IRModule:
        raise ValueError("no plan today")

    module = lowered("Chain")
    original = transform.StaticPlanBlockMemory
    transform.StaticPlanBlockMemory = lambda: fail
    try:
        (found,) = compare_with_tvm(module).values()
    finally:
        transform.StaticPlanBlockMemory = original
    assert "no plan today" in (found.unbounded.problem or "")

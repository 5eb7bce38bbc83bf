from __future__ import annotations

from pathlib import Path

import tvm
from tvm.relax import transform

from symalloc.relax.files.load import load_one
from symalloc.relax.files.tvm_plans import compare_with_tvm
from symalloc.relax.passes.pipeline import lower

SCRIPT = Path(__file__).parents[1] / "modules_with_workspace.py"
TO_PLAN = Path(__file__).parents[1] / "modules_to_plan.py"


def test_bounds_are_kept_and_taken_away() -> None:
    (found,) = compare_with_tvm(lower(load_one(SCRIPT, module="Attention"), "llvm")).values()
    assert found.bounded is not None
    small, large = {"b": 2, "n": 4}, {"b": 2, "n": 512}
    assert found.bounded.reserved(small) == found.bounded.reserved(large) == found.unbounded.reserved(large)
    # q, k, its transpose, the scores and the softmax, of which none has another's size and dies before it
    assert (found.unbounded.reserved(small) or 0) < (found.bounded.reserved(small) or 0) // 100


def test_without_declared_bounds_there_is_one_plan() -> None:
    (found,) = compare_with_tvm(lower(load_one(TO_PLAN, module="Chain"), "llvm")).values()
    assert found.bounded is None
    assert [str(size) for size in found.unbounded.storages] == ["32*n", "32*n"]
    assert (found.unbounded.fresh, found.unbounded.reserved({"n": 3})) == ((), 192)


def test_what_tvm_leaves_by_itself_counts() -> None:
    """Values that cross an If get memory of their own from TVM."""
    (found,) = compare_with_tvm(lower(load_one(TO_PLAN, module="Branches"), "llvm")).values()
    sizes = (*found.unbounded.storages, *found.unbounded.fresh)
    assert len(found.unbounded.fresh) >= 2
    assert found.unbounded.reserved({"n": 5}) == sum(s.evaluate({"n": 5}) for s in sizes if s is not None)


def test_what_called_functions_reserve_counts() -> None:
    found = compare_with_tvm(lower(load_one(SCRIPT, module="Calls"), "llvm"))
    plan, callee = found["main"].unbounded, found["layer"].unbounded
    assert [str(size) for size in callee.storages] == ["64*m"]
    assert [[str(size) for size in sizes] for sizes in plan.calls] == [["64*n"], ["128*n"]]
    own = sum(size.evaluate({"n": 4}) for size in (*plan.storages, *plan.fresh) if size is not None)
    assert plan.reserved({"n": 4}) == own + 128 * 4


def test_a_module_is_not_changed() -> None:
    module = lower(load_one(SCRIPT, module="Attention"), "llvm")
    before = module.script()
    compare_with_tvm(module)
    assert module.script() == before


def test_a_pass_that_fails_is_told() -> None:
    @tvm.transform.module_pass(opt_level=0, name="Failing")
    def fail(_: tvm.IRModule, __: tvm.transform.PassContext) -> tvm.IRModule:
        raise ValueError("no plan today")

    module = lower(load_one(TO_PLAN, module="Chain"), "llvm")
    original = transform.StaticPlanBlockMemory
    transform.StaticPlanBlockMemory = lambda: fail
    try:
        (found,) = compare_with_tvm(module).values()
    finally:
        transform.StaticPlanBlockMemory = original
    assert "no plan today" in (found.unbounded.problem or "")
    assert found.unbounded.reserved({"n": 1}) is None

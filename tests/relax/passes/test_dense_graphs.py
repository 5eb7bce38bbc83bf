"""Graphs of many live tensors of sizes that cannot be ordered: what planning them spends is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import tvm
from tvm import relax, tirx

from symalloc.planner import planner_options
from symalloc.planner.planner_options import PlanBudget
from symalloc.relax.files.plan_file import plan_outcomes
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from tests.models.planned import within_limit

MOST = 1.05  # of an unplanned call, where a budget ends the search
OVER = 1.3  # times its allowance that a budget may be spent: what is begun is ended


def dense(count: int, live: int) -> tvm.IRModule:
    """`count` tensors of as many sizes in two symbols, `live` of them at once, each summed up in the end."""
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    inputs = [relax.Var(f"x_{s.name}", relax.TensorType((s,), "float32")) for s in (n, m)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        total = builder.emit(relax.op.add(*(builder.emit(relax.op.sum(x)) for x in inputs)))
        waiting: list[relax.Var] = []
        for index in range(count):
            shape = relax.ShapeExpr([n * (7 * index % count + 1) + m * (5 * (count - index) % count + 1)])
            waiting.append(builder.emit(relax.op.full(shape, total, "float32")))
            if len(waiting) > live:
                oldest = waiting.pop(index * index % live)
                total = builder.emit(relax.op.add(total, builder.emit(relax.op.sum(oldest))))
        for one in waiting:
            total = builder.emit(relax.op.add(total, builder.emit(relax.op.sum(one))))
        builder.emit_func_output(total)
    return builder.finalize()


@contextmanager
def allowances() -> Iterator[list[PlanBudget]]:
    """The budgets that are given out meanwhile, of which none has more than what tensors bring."""
    given: list[PlanBudget] = []
    of = PlanBudget.of

    def noted(*args: object) -> PlanBudget:
        given.append(of(*args))  # type: ignore[arg-type]
        return given[-1]

    with patch.object(PlanBudget, "of", noted), patch.object(planner_options, "BASE", 0):
        yield given


@pytest.mark.parametrize("count", [12, 36])
def test_what_is_spent_grows_with_the_tensors(count: int) -> None:
    module = lower(dense(count, count // 3), "llvm")
    with allowances() as given:
        found: PlannedModule = plan_lowered(module)
    (budget,) = given
    plan = found.plans["main"]
    assert budget.allowed == planner_options.EACH * 3 * count + planner_options.EACH * 3
    assert budget.spent <= OVER * budget.allowed
    assert "storages" not in {fallback.kind for fallback in plan.fallbacks}
    outcome = plan_outcomes(found)["main"]
    for extents in ({"n": 8, "m": 8}, {"n": 900, "m": 40}, {"n": 1000, "m": 100_000}):
        planned, unplanned = outcome.planned.peak(extents), outcome.unplanned.peak(extents)
        assert planned is not None and unplanned is not None
        assert planned <= max(MOST * unplanned, within_limit(unplanned))

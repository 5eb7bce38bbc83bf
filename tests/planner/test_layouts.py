"""Layouts: what is at the floor says nothing, what gave in says how and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest

from symalloc.planner import plan_functions
from symalloc.planner.check.validate import validate
from symalloc.planner.memory_plan import Buffer, Plan, PlanOptions
from symalloc.planner.plan_functions import Layout, LayoutSearch
from symalloc.planner.stack import SearchBudget
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.expr import Expr
from symalloc.size.parse import parse_expr
from tests.program.build import Body, param

EMPTY = Body(param("x", "n"), name="main").finish(param("x", "n"))
# a third above the floor by every heuristic, either for small n or for large
CROSSED = (("128*n", 3, 5), ("64*n", 4, 7), ("64*n", 2, 4), ("64*n", 1, 3), ("4096", 0, 3), ("64*n", 0, 2))


def buffer(index: int, size: Expr | str, begin: int, end: int) -> Buffer:
    size = parse_expr(size) if isinstance(size, str) else size
    return Buffer(id=index, name=f"b{index}", size=size, nbytes=size, live=((begin, end),))


def found(*arenas: Sequence[Buffer]) -> list[Layout]:
    search = LayoutSearch(function=EMPTY, domain=Domain(), prover=Prover(), options=PlanOptions())
    layout = search.layout(arenas)
    steps = [] if layout is None else [layout]
    for step in steps:
        plan = Plan(function="main", arenas=step.arenas)
        assert validate(plan, Domain(), Prover(), machine=False) == ()
    return steps


def test_a_search_that_ends_above_the_floor_says_so() -> None:
    poor = SearchBudget(work=0)
    buffers = [buffer(i, *row) for i, row in enumerate(CROSSED)]
    with patch.object(plan_functions.SearchBudget, "of", lambda *_, **__: poor):
        first, *_ = found(buffers)
    (fallback,) = first.fallbacks
    assert fallback.kind == "search" and 1.2 < fallback.ratio < 1.5


@pytest.mark.parametrize("guest", ["64*n", "128*n", "64*n*(n // 5000)"])
def test_what_lies_in_the_memory_of_a_result_must_not_outgrow_it(guest: str) -> None:
    result = replace(buffer(1, "64*n + 64", 2, 4), var=param("y", "n"), returned=True)
    outgrown = {var for step in found([buffer(0, guest, 0, 2), result]) for var in step.outgrown}
    assert outgrown == (set() if guest == "64*n" else {result.var})

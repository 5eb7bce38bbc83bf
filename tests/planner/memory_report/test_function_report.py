from __future__ import annotations

import pytest

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.planner.memory_plan import Arena, Buffer, Placement, Plan
from symalloc.planner.memory_report.function_report import reserved_sums
from symalloc.program.ir import AllocFresh, Ownership, Var
from symalloc.program.types import TensorType
from symalloc.size.expr import ZERO
from symalloc.size.parse import parse_expr
from symalloc.size.sign import undominated
from tests.program.build import U8, Body, param, shape, tensor_of


def texts(*sums: str) -> list[str]:
    return [str(kept) for kept in undominated(map(parse_expr, sums))]


def test_only_what_no_other_reaches_term_by_term_is_kept() -> None:
    assert texts("4*n", "8*n", "4*n") == ["8*n"]
    assert texts("4*n + 8", "8*n") == ["4*n + 8", "8*n"]
    assert texts("n*m", "n*m + 3", "2*m") == ["m*n + 3", "2*m"]
    assert texts() == []
    assert len(texts("n", "n % 4 + n - 3")) == 2  # the sign of the difference depends on n


def alloc(body: Body, extent: str) -> Var:
    return body.emit(
        AllocFresh(var=body.var(tensor_of(extent)), shape=shape(extent), dtype=U8, device=0, scope="global")
    )


def arena(analysis: FunctionAnalysis, variable: Var, extent: str, after: Var | None = None) -> Arena:
    size = 64 * parse_expr(extent)
    number = analysis.points_to.allocated(variable).number
    live, *steps = analysis.live_ranges([number]).of[number]
    buffer = Buffer(
        id=0, name=variable.name, size=size, nbytes=size, live=live, var=variable, steps=(steps[0], steps[1])
    )
    placement = Placement(buffer=buffer, offset=ZERO)
    return Arena(device=0, scope="global", size=size, placements=(placement,), defined_by=after)


@pytest.mark.parametrize(
    ("read_later", "expected"), [(False, ["64*n", "64*k"]), (True, ["64*k + 64*n"])], ids=["dead", "alive"]
)
def test_an_early_arena_counts_as_long_as_it_is_touched(read_later: bool, expected: list[str]) -> None:
    body = Body(param("x", "n"))
    early = alloc(body, "n")
    body.call("fill", early)
    found = body.packed("count", kind=TensorType(shape=None, dtype=U8, ndim=1), ownership=Ownership.FRESH)
    cast = body.cast(found, "k", defines=["k"])
    late = alloc(body, "k")
    body.call("fill", late)
    if read_later:
        body.call("read", early)
    analysis = analyse(body.program())["main"]
    plan = Plan(function="main", arenas=(arena(analysis, early, "n"), arena(analysis, late, "k", after=cast)))
    sums = reserved_sums(plan)
    assert sorted(map(str, sums)) == sorted(expected)


def test_arenas_are_there_together_while_both_are_touched() -> None:
    body = Body(param("x", "n"))
    one, other = alloc(body, "n"), alloc(body, "n")
    body.call("fill", one)
    body.call("fill", other)
    body.call("read", one)
    analysis = analyse(body.program())["main"]
    plan = Plan(function="main", arenas=(arena(analysis, one, "n"), arena(analysis, other, "n")))
    assert [str(s) for s in reserved_sums(plan)] == ["128*n"]

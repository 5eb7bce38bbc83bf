"""Declared bounds that a plan enforces, and constants that hold within them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symalloc.errors import UsageError
from symalloc.planner.buffers.sizing import known_symbols
from symalloc.planner.enforced_bounds import enforced, greatest, within
from symalloc.planner.memory_plan import Plan
from symalloc.planner.plan_functions import plan_program
from symalloc.planner.planner_options import BoundsUse, PlanOptions
from symalloc.program.control_flow import control_flow_graph
from symalloc.program.ir import DeclaredBound, Function
from symalloc.program.types import ALIGNMENT
from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.prover.prover import Prover
from symalloc.size.parse import parse_expr
from tests.planner.test_plan_functions import chain, only
from tests.program.build import program_of

SIZES = (
    "64*n",
    "64*n*m",
    "64*((n*m + 3) // 4)",
    "64*n*(9 - n)",
    "64*max(n, 7 - m)",
    "64*(n % 5)",
    "100*n + m",
)


@given(st.sampled_from(SIZES), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_the_greatest_size_holds_everywhere_and_is_reached(size: str, n: int, low: int, high: int) -> None:
    low, high = sorted((low, high))
    expr = parse_expr(size)
    found = greatest(expr, Domain(lower={"m": low}, upper={"n": n, "m": high}), Prover())
    assert found is not None and found % ALIGNMENT == 0
    values = [expr.evaluate({"n": a, "m": b}) for a, b in product(range(n + 1), range(low, high + 1))]
    assert found >= max(values)
    assert found == max(-(-max(values) // ALIGNMENT) * ALIGNMENT, 0) or "%" in size or "9 - n" in size


def test_a_size_without_an_upper_bound_has_no_greatest() -> None:
    assert greatest(parse_expr("64*n*m"), Domain(upper={"n": 4}), Prover()) is None
    assert greatest(parse_expr("128"), Domain(), Prover()) == 128


def test_bounds_that_no_machine_has_the_memory_for_reserve_nothing() -> None:
    size = parse_expr("64*n*m")
    assert greatest(size, Domain(upper={"n": 2**31, "m": 2**10}), Prover()) == 2**47
    assert greatest(size, Domain(upper={"n": 2**31, "m": 2**10 + 1}), Prover()) is None
    assert greatest(size, Domain(upper={"n": 2**62, "m": 2**62}), Prover()) is None


def test_a_size_whose_divisor_may_be_zero_at_a_corner_is_bounded_elsewhere() -> None:
    assert greatest(parse_expr("64*(n // m)"), Domain(upper={"n": 4, "m": 2}), Prover()) == 256


def test_bounds_narrow_a_domain() -> None:
    bounds = (DeclaredBound("n", 8, True), DeclaredBound("n", 2, False), DeclaredBound("n", 9, True))
    domain = within(Domain(lower={"n": 1}), bounds)
    assert (domain.lower_of("n"), domain.upper_of("n"), domain.upper_of("m")) == (2, 8, INT64_MAX)


def bounded(*extents: str, upper: int = 8, lower: int | None = None) -> Function:
    below = {} if lower is None else {"n": lower}
    return replace(chain("main", *extents), declared_upper={"n": upper}, declared_lower=below)


def planned(function: Function, bounds: BoundsUse) -> Plan:
    return only(plan_program(program_of(function), Prover(), options=PlanOptions(bounds=bounds)))


def test_what_the_domain_implies_is_not_checked() -> None:
    function = bounded("64*n", lower=0)
    domain = known_symbols(control_flow_graph(function)).domain
    assert enforced(function, domain, "ignore") == ()
    assert enforced(function, domain, "enforce") == (DeclaredBound("n", 8, True),)


def test_enforced_bounds_are_one_check_and_stand_for_those_of_64_bits() -> None:
    function = bounded("64*n", "2**40*n", lower=2)
    plan = planned(function, "enforce")
    assert [(str(g.condition), g.declared) for g in plan.guards] == [("n <= 8", True), ("n >= 2", True)]
    assert "n" in str(plan.arenas[0].size)


def test_reserved_arenas_and_offsets_are_constants_at_the_bound() -> None:
    plan = planned(bounded("64*n", "128*n", "64*n*(8 - n)"), "reserve")
    (arena,) = plan.arenas
    assert arena.size.as_constant == 128 * 8 + max(64 * 8, 64 * 16)
    assert all(p.offset.as_constant is not None for p in arena.placements)


def test_what_is_not_bounded_keeps_an_arena_of_formulas_beside() -> None:
    x = replace(chain("main", "64*n", "64"), declared_upper={})
    sizes = sorted(str(a.size) for a in planned(x, "reserve").arenas)
    assert sizes == ["64", "64*n"]


@pytest.mark.parametrize("bounds", ["enforce", "reserve"])
def test_bounds_without_a_check_are_refused(bounds: BoundsUse) -> None:
    with pytest.raises(UsageError, match=r"rests on a check at entry.*take other guards"):
        PlanOptions(bounds=bounds, guards="none")

"""Arenas under the largest buffer that a device has, and the tensors that no arena can hold within it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symalloc.planner.buffers.candidates import known_symbols
from symalloc.planner.memory_plan import Arena, BoundsUse, FallbackKind, Flavour, Plan, PlanOptions
from symalloc.planner.overflow_guards import edges, enforced, greatest, within
from symalloc.planner.plan_functions import plan_program
from symalloc.program.control_flow import control_flow_graph
from symalloc.program.ir import DeclaredBound, Function
from symalloc.program.types import ALIGNMENT
from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.prover.prover import Prover
from symalloc.size.parse import parse_expr
from tests.planner.random_programs import random_program
from tests.planner.test_plan_functions import chain, only
from tests.program.build import program_of
from tests.scale import tries

PROVER, LIMIT = Prover(), 4096
EXTENTS = (0, 1, 2, 3, 5, 8, 12, 15, 16, 17, 21, 31, 32, 33, 40, 63, 64, 65, 100, 512, 4096)


def _planned(*extents: str, most: int | str = LIMIT, upper: int | None = None, **options: str) -> Plan:
    function = replace(chain("main", *extents), declared_upper={} if upper is None else {"n": upper})
    chosen = PlanOptions(max_buffer=most, **options)  # type: ignore[arg-type]
    return only(plan_program(program_of(function), Prover(), options=chosen))


@pytest.mark.parametrize("flavour", ["arena", "storages"])
@pytest.mark.parametrize("seed", range(tries(12, 240)))
def test_an_arena_takes_the_limit_or_its_largest_tensor(seed: int, flavour: Flavour) -> None:
    options, random = PlanOptions(max_buffer=LIMIT, flavour=flavour), Random(seed)
    for plan in plan_program(random_program(seed), PROVER, options=options).values():
        named = {one.size for one in plan.too_large}
        for arena in plan.arenas:
            sizes = {p.buffer.size for p in arena.placements}
            for _ in range(60):
                binding = {name: random.choice(EXTENTS) for name in sorted(arena.size.symbols)}
                taken = [size.evaluate(binding) for size in sizes]
                assert arena.size.evaluate(binding) <= max(LIMIT, *taken), (arena.size, binding)
            for size in sizes - named:
                assert all(size.evaluate(dict.fromkeys(size.symbols, n)) <= LIMIT for n in EXTENTS)


def test_an_arena_is_split_and_says_why() -> None:
    plan = _planned("64*n", "64*n", "64*n")
    assert [str(arena.size) for arena in plan.arenas] == ["64*n", "64*n"]
    assert "one buffer" in (plan.arenas[1].further.reason if plan.arenas[1].further else "")
    assert [(t.name, str(t.size), t.alike, dict(t.at)) for t in plan.too_large] == [
        ("t0", "64*n", 3, {"n": 65})
    ]


def test_shapes_within_the_declared_bounds_count() -> None:
    assert [str(arena.size) for arena in _planned("64*n", "64*n", upper=32).arenas] == ["128*n"]
    assert len(_planned("64*n", "64*n", upper=33).arenas) == 2
    assert not _planned("64*n", "64*n", upper=64).too_large


def test_what_is_too_large_lies_under_nothing() -> None:
    plan = _planned("8192", "1024", "2048", "1024")
    assert sorted(arena.size.evaluate({}) for arena in plan.arenas) == [1024, 8192]


def test_a_constant_that_is_too_large_is_named() -> None:
    plan = _planned("64*n", upper=65, bounds="reserve")
    assert [(str(t.size), t.limit, dict(t.at)) for t in plan.too_large] == [("4160", 4096, {})]
    assert not _planned("64*n", upper=65, bounds="reserve", most="4160").too_large


def test_without_a_proof_whole_storages_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    def unproved(arenas: Sequence[Arena], *_: object) -> Iterator[dict[str, int]]:
        return ({} for arena in arenas if not arena.placements[0].buffer.grounded)

    monkeypatch.setattr("symalloc.planner.plan_functions.beyond", unproved)
    plan = _planned("64*n", "64*n + 64", "64*n")
    kinds: list[FallbackKind] = [fallback.kind for fallback in plan.fallbacks]
    assert kinds == ["storages"] and all(str(p.offset) == "0" for a in plan.arenas for p in a.placements)


def test_edges_are_the_largest_shapes_within_the_limit() -> None:
    sizes = [parse_expr("64*n*m"), parse_expr("64*n")]
    assert list(edges(sizes, {"m": 2}, LIMIT)) == [{"m": 2, "n": 32}] * 2


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


@pytest.mark.parametrize(
    ("size", "upper", "expected"),
    [
        ("64*n*m", {"n": 4}, None),  # m has no bound
        ("128", {}, 128),
        ("64*n*m", {"n": 2**31, "m": 2**10}, 2**47),
        ("64*n*m", {"n": 2**31, "m": 2**10 + 1}, None),  # no machine has so much
        ("64*n*m", {"n": 2**62, "m": 2**62}, None),
        ("64*(n // m)", {"n": 4, "m": 2}, 256),  # the divisor is zero at a corner
    ],
)
def test_the_greatest_size(size: str, upper: dict[str, int], expected: int | None) -> None:
    assert greatest(parse_expr(size), Domain(upper=upper), Prover()) == expected


def test_bounds_narrow_a_domain() -> None:
    bounds = (DeclaredBound("n", 8, True), DeclaredBound("n", 2, False), DeclaredBound("n", 9, True))
    domain = within(Domain(lower={"n": 1}), bounds)
    assert (domain.lower_of("n"), domain.upper_of("n"), domain.upper_of("m")) == (2, 8, INT64_MAX)


def bounded(*extents: str, lower: int | None = None) -> Function:
    below = {} if lower is None else {"n": lower}
    return replace(chain("main", *extents), declared_upper={"n": 8}, declared_lower=below)


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
    plan = planned(bounded("64*n", "128*n", "2*n*n + 64*n"), "reserve")
    (arena,) = plan.arenas
    assert arena.size.as_constant == 128 * 8 + max(64 * 8, 2 * 64 + 64 * 8)
    assert all(p.offset.as_constant is not None for p in arena.placements)


def test_what_is_not_bounded_keeps_an_arena_of_formulas_beside() -> None:
    x = replace(chain("main", "64*n", "64"), declared_upper={})
    sizes = sorted(str(a.size) for a in planned(x, "reserve").arenas)
    assert sizes == ["64", "64*n"]

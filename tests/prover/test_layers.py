"""Each layer against brute force: whatever it claims must be so at every point of a small box."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.prover.bounds import Box, decide, interval
from symalloc.prover.budget import Budget, Meter
from symalloc.prover.cases import first_choice, split_extrema
from symalloc.prover.equations import divisor_points, impossible
from symalloc.prover.factors import factor
from symalloc.prover.normalize import NormalizedDomain, absorb
from symalloc.prover.point_search import satisfies, walk
from symalloc.prover.products import contradiction
from symalloc.prover.prover import Prover
from symalloc.prover.quotients import abstract_quotients, long_division
from symalloc.prover.readable import simplify
from symalloc.prover.refute import refute, refute_by_residues
from symalloc.prover.simplex import negative_combination
from symalloc.prover.univariate import complement, nonpositive, solve, solve_exactly
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import Condition, Relation
from symalloc.size.expr import Expr
from symalloc.size.parse import parse_condition, parse_expr
from tests.prover.brute import boxes, conditions, points, polynomials, sizes
from tests.scale import tries

pytestmark = pytest.mark.slow

NO_SOLVER = Budget(z3_steps=0)
HUGE = 2**63 - 1


def box(upper: int = HUGE, lower: int = 1, names: str = "nmkbsh") -> Box:
    return Box(dict.fromkeys(names, lower), dict.fromkeys(names, upper))


@given(sizes(), boxes())
@settings(max_examples=tries(75, 1500))
def test_intervals_hold_every_value(expr: Expr, there: Box) -> None:
    low, high = interval(expr, there)
    assert all(low <= expr.evaluate(p) <= high for p in points(there))


@given(conditions(), boxes())
@settings(max_examples=tries(75, 1500))
def test_bounds_decide_only_what_is_so(condition: Condition, there: Box) -> None:
    value = decide(condition, there)
    assert value is None or all(condition.evaluate(p) is value for p in points(there))


@given(st.lists(st.integers(-30, 30), max_size=5), st.integers(-20, 20), st.integers(0, 30))
def test_polynomial_is_at_most_zero_exactly_there(coefficients: list[int], low: int, width: int) -> None:
    trimmed = list(coefficients)
    while trimmed and not trimmed[-1]:
        trimmed.pop()
    spans = nonpositive(trimmed, low, low + width)
    found = {x for first, last in spans for x in range(first, last + 1)}
    inside = range(low, low + width + 1)
    assert found == {x for x in inside if sum(c * x**i for i, c in enumerate(coefficients)) <= 0}
    assert all(b[0] > a[1] + 1 for a, b in pairwise(spans))


def test_univariate_reaches_the_end_of_int64() -> None:
    assert solve(parse_condition("n*n <= 10**18"), 0, HUGE) == [(0, 10**9)]
    assert solve(parse_condition("n*n != 10**18"), 0, HUGE) == [(0, 10**9 - 1), (10**9 + 1, HUGE)]
    assert complement([(0, 5)], 0, HUGE) == [(6, HUGE)]


@given(conditions(), boxes())
@settings(max_examples=tries(75, 1500))
def test_exact_solutions_are_all_and_only_those_that_hold(condition: Condition, there: Box) -> None:
    exact = solve_exactly(condition, NormalizedDomain(names=tuple(there.lower), box=there))
    if exact is None:
        return
    spans = dict(exact.inside)
    for point in points(there):
        q, r = divmod(point[exact.name], exact.step)
        assert any(a <= q <= b for a, b in spans[r]) is condition.evaluate(point)


@given(conditions())
@settings(max_examples=tries(75, 1500))
def test_splitting_choices_keeps_the_meaning(condition: Condition) -> None:
    split = split_extrema(condition, limit=16)
    for point in points(Box({"a": -3, "b": -3}, {"a": 4, "b": 4})):
        assert split.evaluate(point) is condition.evaluate(point)


def test_choices_inside_divisions_are_split() -> None:
    split = split_extrema(parse_condition("(max(n, m) + 3) // 4 <= min(n, 8)"), limit=8)
    assert first_choice(split) is None


def test_simplex_finds_a_combination() -> None:
    # x - y - 1 >= 0 and y - x >= 0 contradict each other
    assert negative_combination([{"x": 1, "y": -1}, {"x": -1, "y": 1}], [-1, 0], Meter(1000)) is True
    assert negative_combination([{"x": 1, "y": -1}, {"x": -1, "y": 2}], [-1, 0], Meter(1000)) is False
    assert negative_combination([{"x": 1}, {"x": -1}], [-1, 0], Meter(0)) is None


@given(st.lists(conditions(polynomials()), min_size=1, max_size=3), boxes(5))
@settings(max_examples=tries(100, 2000))
def test_products_contradict_only_what_has_no_point(claims: list[Condition], there: Box) -> None:
    if contradiction(claims, there, Meter(20_000)):
        relations = [c for c in claims if isinstance(c, Relation)]
        assert not any(satisfies(p, relations) for p in points(there))


@pytest.mark.parametrize(
    "texts",
    [
        ("n <= m", "n >= m + 1"),
        ("h <= k", "4*b*s*h >= 4*b*s*k + 1"),
        ("n >= m + 1", "n*n <= m*m + 2*m"),
        ("n*n + m*m <= 2*n*m - 1",),
    ],
)
def test_products_refute(texts: tuple[str, ...]) -> None:
    assert contradiction(map(parse_condition, texts), box(), Meter(50_000))


@given(st.lists(conditions(), min_size=1, max_size=2), boxes(5))
@settings(max_examples=tries(100, 2000))
def test_refutation_rules_out_only_what_has_no_point(claims: list[Condition], there: Box) -> None:
    for method in (refute, refute_by_residues):
        if method(claims, there, NO_SOLVER) is not None:
            assert not any(satisfies(p, claims) for p in points(there))


@pytest.mark.parametrize(
    ("text", "layer"),
    [
        ("n <= 0", "bounds"),
        ("(n + 15) // 16 * 16 < n", "products"),
        ("min(n, m) > max(n, m)", "cases"),
        ("n*n == 2*m*m", "equations"),
        ("n*n + m*m == 4*k + 3", "equations"),
        ("n // n != 1", "products"),
        ("6*n + 10*m == 15*k + 1 and n % 5 == 1", None),
        ("n % 2 == 0 and n % 4 == 1", "equalities"),
    ],
)
def test_refutation_by_layer(text: str, layer: str | None) -> None:
    found = refute((parse_condition(text),), box(), NO_SOLVER)
    assert (found is None) is (layer is None)
    if layer not in (None, "products"):
        assert found == layer


@pytest.mark.parametrize(
    "text",
    [
        "b*((n - 1) // 2 + 1) != b*((n + 1) // 2)",
        "max(128*b*n, 64*((n + 1)//2)*b + 64*((16*((n + 1)//2)*b + 63)//64) + 256) < 128*((n + 1)//2)*b",
        "b*n < (16*((n + 1) // 2)*b + 63) // 64",
        "b*((n + 2) // 3) > b*n",
    ],
)
def test_strided_extents_need_no_solver_even_where_they_may_be_empty(text: str) -> None:
    assert refute((parse_condition(text),), box(lower=0, names="bn"), NO_SOLVER) is not None


@pytest.mark.parametrize("text", ["b*((n + 3) // 2) > b*n", "b*n - b*m <= -2", "b*n + 1 <= b*m"])
def test_factors_that_may_be_zero_are_not_divided_away(text: str) -> None:
    assert refute((parse_condition(text),), box(upper=4, lower=0, names="bmn"), NO_SOLVER) is None


@pytest.mark.parametrize(
    "text",
    [
        "(n*(n + 1)*m) % 2 == 0",
        "(n*m) % 2 == (n % 2)*(m % 2)",
        "n*(n + 1)*(2*n + 1) % 6 == 0 or m == 0",  # z3 does not decide these two within the budget
    ],
)
def test_residues_decide_parities(text: str) -> None:
    proof = Prover(NO_SOLVER).prove(parse_condition(text))
    assert (proof.verdict, proof.decided_by) == (Verdict.ALWAYS_VALID, "residues")


@given(st.lists(conditions(), min_size=1, max_size=2), boxes(5))
@settings(max_examples=tries(75, 1500))
def test_quotient_symbols_lose_no_point(claims: list[Condition], there: Box) -> None:
    """At each point where the claims hold, the quotients are values of the new symbols that satisfy all."""
    wider = there.copy()
    written, quotients = abstract_quotients(claims, wider)
    for point in points(there):
        if not satisfies(point, claims):
            continue
        values = dict(point)
        for quotient, above, below in quotients:
            name = quotient.as_symbol
            assert name is not None
            values[name] = above.evaluate(values) // below.evaluate(values)
            assert wider.lower[name] <= values[name] <= wider.upper[name]
        assert satisfies(values, written)


def test_exact_division_of_polynomials() -> None:
    whole, rest = long_division(parse_expr("n*m*k + 3*m*k + 1"), parse_expr("m*k"))
    assert (whole, rest) == (parse_expr("n + 3"), parse_expr("1"))
    assert long_division(parse_expr("n"), parse_expr("m")) == (parse_expr("0"), parse_expr("n"))
    assert long_division(parse_expr("n*m + n"), parse_expr("m + 1"))[1] == parse_expr("0")


@given(st.lists(conditions(), min_size=1, max_size=3), boxes(5))
@settings(max_examples=tries(100, 2000))
def test_regions_keep_exactly_the_points(claims: list[Condition], there: Box) -> None:
    domain = NormalizedDomain(names=tuple(there.lower), box=there.copy())
    absorb(domain, claims)
    wanted = {tuple(sorted(p.items())) for p in points(there) if satisfies(p, claims)}
    if domain.empty:
        assert not wanted
        return
    lifted = (domain.to_domain(p) for p in points(domain.box) if satisfies(p, domain.facts))
    assert {tuple(sorted(p.items())) for p in lifted} == wanted


@given(conditions(), boxes())
@settings(max_examples=tries(75, 1500))
def test_simplification_keeps_the_meaning(condition: Condition, there: Box) -> None:
    simple = simplify(condition, there)
    assert all(simple.evaluate(p) is condition.evaluate(p) for p in points(there))


@given(st.integers(1, 10**7) | st.sampled_from([41**2, 43**4, 999983 * 1000003, 41**2 * 47**3]))
def test_factors_multiply_to_the_number(value: int) -> None:
    primes = factor(value)
    assert primes is not None
    product = 1
    for prime, count in primes.items():
        assert all(prime % d for d in range(2, int(prime**0.5) + 1))
        product *= prime**count
    assert product == value


def test_equations_by_divisors() -> None:
    assert impossible(_equation("n*m == 999983"), box(lower=2))
    assert not impossible(_equation("n*m == 999983*1000003"), box(lower=2))
    assert {p["n"] for p in divisor_points(_equation("n*m == 12"), box(lower=2))} == {2, 3, 4, 6}
    assert factor(10**30) is None


def _equation(text: str) -> Relation:
    found = parse_condition(text)
    assert isinstance(found, Relation)
    return found


def test_walk_repairs_a_point() -> None:
    wanted = (parse_condition("total >= off + size + 63"), parse_condition("off >= 4096"))
    there = Box(dict.fromkeys(("off", "size", "total"), 1), dict.fromkeys(("off", "size", "total"), HUGE))
    found = walk(wanted, there, ({"off": 1, "size": 1, "total": 1},), steps=400)
    assert found is not None
    assert satisfies(found, wanted)

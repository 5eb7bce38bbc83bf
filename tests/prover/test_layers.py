"""Each layer against brute force: whatever it claims must be so at every point of a small box."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.prover.domain import Box, Budget, Meter, decide, interval
from symalloc.prover.normalize import NormalizedDomain, absorb
from symalloc.prover.prover import simplify
from symalloc.prover.query import abstract_quotients, contradiction, refute, satisfies
from symalloc.size.condition import Condition, Relation
from symalloc.size.expr import Expr
from symalloc.size.parse import parse_condition
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


@given(st.lists(conditions(polynomials()), min_size=1, max_size=3), boxes(5))
@settings(max_examples=tries(100, 2000))
def test_products_contradict_only_what_has_no_point(claims: list[Condition], there: Box) -> None:
    if contradiction(claims, there, Meter(20_000)):
        relations = [c for c in claims if isinstance(c, Relation)]
        assert not any(satisfies(p, relations) for p in points(there))


@given(st.lists(conditions(), min_size=1, max_size=2), boxes(5))
@settings(max_examples=tries(100, 2000))
def test_refutation_rules_out_only_what_has_no_point(claims: list[Condition], there: Box) -> None:
    if refute(claims, there, NO_SOLVER) is not None:
        assert not any(satisfies(p, claims) for p in points(there))


@pytest.mark.parametrize(
    ("text", "layer"),
    [
        ("n <= 0", "bounds"),
        ("(n + 15) // 16 * 16 < n", "products"),
        ("min(n, m) > max(n, m)", "cases"),
        ("n // n != 1", "products"),
        ("n*n % 3 == 2", "cases"),
        ("6*n + 10*m == 15*k + 1 and n % 5 == 1", None),
        ("n % 2 == 0 and n % 4 == 1", "equalities"),
    ],
)
def test_refutation_by_layer(text: str, layer: str | None) -> None:
    found = refute((parse_condition(text),), box(), NO_SOLVER)
    assert (found is None) is (layer is None)
    if layer not in (None, "products"):
        assert found == layer


@pytest.mark.parametrize("text", ["b*((n + 3) // 2) > b*n", "b*n - b*m <= -2", "b*n + 1 <= b*m"])
def test_factors_that_may_be_zero_are_not_divided_away(text: str) -> None:
    assert refute((parse_condition(text),), box(upper=4, lower=0, names="bmn"), NO_SOLVER) is None


@given(st.lists(conditions(), min_size=1, max_size=2), boxes(5))
@settings(max_examples=tries(75, 1500))
def test_quotient_symbols_lose_no_point(claims: list[Condition], there: Box) -> None:
    """At each point where the claims hold, some values of the new symbols satisfy all that is written."""
    wider = there.copy()
    written = abstract_quotients(claims, wider)
    fresh = [name for name in wider.lower if name not in there.lower]
    sides = [range(wider.lower[name], wider.upper[name] + 1) for name in fresh]
    if prod(map(len, sides)) > 2_000:
        return
    for point in points(there):
        if satisfies(point, claims):
            chosen = (dict(zip(fresh, values, strict=True)) for values in product(*sides))
            assert any(satisfies(point | values, written) for values in chosen)


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

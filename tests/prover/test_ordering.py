"""What the validator sees without the prover, against exact evaluation and against z3."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.prover.domain import Domain, SyntacticOrder, alternatives, candidates
from symalloc.size.choice import maximum
from symalloc.size.expr import Expr, constant, floordiv, mod, round_up, symbol
from tests.prover.brute import sizes
from tests.scale import tries

N, M = symbol("n"), symbol("m")
VALUES = (-7, -1, 0, 1, 2, 15, 16, 17, 64, 1000)


exprs = sizes(
    st.integers(-130, 130).map(constant) | st.sampled_from([N, M, N * M, N * N, 64 * N, M - 3]),
    most=64,
    rounded_to=64,
)
domains = st.sampled_from(
    [Domain(), Domain(lower={"n": 1}), Domain(lower={"m": -10}), Domain(default_lower=-10)]
)


def points(domain: Domain) -> list[dict[str, int]]:
    found = [{"n": n, "m": m} for n in VALUES for m in VALUES]
    return [p for p in found if domain.contains(p)]


@settings(max_examples=tries(200, 4000))
@given(exprs, exprs, domains)
def test_what_is_seen_holds_at_every_point(low: Expr, rest: Expr, domain: Domain) -> None:
    """`low + rest` has terms in common with `low`: much of it is seen where `rest` is never negative."""
    sight = SyntacticOrder(domain)
    for high in (low + rest, rest):
        if sight.at_most(low, high):
            assert all(low.evaluate(p) <= high.evaluate(p) for p in points(domain))


@settings(max_examples=tries(100, 2000))
@given(exprs)
def test_alternatives_have_the_value_as_their_maximum(expr: Expr) -> None:
    for point in points(Domain(default_lower=-10))[::7]:
        value = expr.evaluate(point)
        assert max(a.evaluate(point) for a in alternatives(expr)) == value
        assert value in {c.evaluate(point) for c in candidates(expr)}


def test_the_usual_questions_are_seen() -> None:
    sight = SyntacticOrder(Domain())
    high = maximum(1024 * N * M, 512 * N * M + round_up(4 * N, 64))
    assert sight.at_most(512 * N * M + round_up(4 * N, 64), high)
    assert sight.at_most(high, high + 256 * M)
    assert sight.at_most(constant(0), high)
    assert sight.at_most(mod(maximum(64 * N, 128 * M), 64), constant(0))
    assert not sight.at_most(64 * N, 64 * M)
    assert not sight.at_most(constant(0), N - 1)


def test_rounding_is_seen() -> None:
    sight = SyntacticOrder(Domain())
    packed = floordiv(N + 7, 8)
    assert sight.at_most(packed, round_up(packed, 64))
    assert sight.at_most(round_up(4 * N, 64), 4 * N + 63)
    assert sight.at_most(round_up(4 * N, 64), 4 * N + 60)  # both are multiples of 4
    assert not sight.at_most(round_up(4 * N, 64), 4 * N + 59)
    assert sight.at_most(round_up(4 * N, 64) + 64 * M, maximum(4 * N + 63, 5) + 64 * M)


def test_a_symbol_that_may_be_negative_is_not_taken_for_a_size() -> None:
    assert not SyntacticOrder(Domain(lower={"n": -1})).at_most(constant(0), 64 * N)
    assert SyntacticOrder(Domain(lower={"n": -1})).at_most(constant(0), 64 * N * N)


@settings(max_examples=tries(50, 400))
@given(exprs, exprs)
def test_beyond_its_budget_an_order_says_no_more_than_terms_show(low: Expr, high: Expr) -> None:
    spent = SyntacticOrder(Domain(), most=-1)
    assert not spent.at_most(low, high) or SyntacticOrder(Domain()).at_most(low, high)
    assert spent.at_most(64 * N, 64 * N + 128 * M) and not spent.at_most(N, round_up(N, 64))
    assert spent.compared == 0

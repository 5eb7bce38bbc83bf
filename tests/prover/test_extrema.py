"""Maxima taken apart, and quotients at their worst: what is shown this way is true at every point."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.prover import extrema
from symalloc.prover.budget import Budget
from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.prover.extrema import holds_by_operands
from symalloc.prover.normalize import normalize
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.choice import maximum, minimum
from symalloc.size.condition import le
from symalloc.size.expr import Expr, constant, floordiv, round_up, symbol
from tests.scale import tries

B, H, W = symbol("b"), symbol("h"), symbol("w")
HALVED = 16 * B * floordiv(H + 1, 2) * floordiv(W + 1, 2)
FOURTH = 16 * B * floordiv(H + 3, 4) * floordiv(W + 3, 4)
LAYERS = 128 * B * H * W + round_up(24 * B * H * W, 64) + round_up(28 * B * H * W, 64)
ARENA = maximum(LAYERS, round_up(HALVED, 64) + round_up(FOURTH, 64))
GUARD = le(256 * B * H * W + 19 * B * H + 19 * B * W + 85 * B, INT64_MAX - 508)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (HALVED + 128 * B * H * W, ARENA),  # at most one operand is enough
        (ARENA, constant(INT64_MAX)),  # every operand must be
        (
            round_up(HALVED, 64) + round_up(FOURTH, 64),
            constant(INT64_MAX),
        ),  # quotients of products of quotients
    ],
)
def test_a_strided_image_lies_in_its_arena(low: Expr, high: Expr) -> None:
    proof = Prover().prove(le(low, high), Domain().assuming((GUARD,)), explain=False)
    assert proof.verdict is Verdict.ALWAYS_VALID
    assert proof.decided_by == "operands"


def test_all_attempts_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    claim, domain = le(ARENA, INT64_MAX), Domain().assuming((GUARD,))
    whole = normalize(domain, claim.symbols, domain.assumptions)
    assert holds_by_operands(claim, whole, Budget())
    monkeypatch.setattr(extrema, "MOST_CONDITIONS", 1)
    assert not holds_by_operands(claim, whole, Budget())


def test_one_byte_less_is_not_shown() -> None:
    proof = Prover().prove(le(ARENA + 1, ARENA), explain=False)
    assert proof.verdict is Verdict.ALWAYS_INVALID


def terms() -> st.SearchStrategy[Expr]:
    factor = st.sampled_from([B, H, W, floordiv(H + 1, 2), floordiv(W - 3, 4), floordiv(B * H + 5, 3)])
    single = st.builds(lambda c, x, y: c * x * y, st.integers(-3, 3), factor, factor)
    return st.builds(lambda x, y, c: x + y + c, single, single, st.integers(-4, 4))


def sides() -> st.SearchStrategy[Expr]:
    return st.one_of(terms(), *(st.builds(make, terms(), terms()) for make in (maximum, minimum)))


@settings(max_examples=tries(30, 600))
@given(sides(), sides())
def test_what_is_shown_holds_at_every_small_point(low: Expr, high: Expr) -> None:
    proof = Prover().prove(le(low, high), explain=False)
    if proof.verdict is Verdict.ALWAYS_VALID:
        for b, h, w in product(range(7), repeat=3):
            at = {"b": b, "h": h, "w": w}
            assert low.evaluate(at) <= high.evaluate(at)

"""Long conditions with many choices: no wrong verdict."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import Condition, eq, ge, le
from symalloc.size.expr import Expr, constant, floordiv, symbol
from tests.scale import tries

N = symbol("n")
RANGE = range(-8, 9)


def linear(rng: Random) -> Expr:
    return rng.choice([-1, 1, 2, 4]) * N + rng.randint(-9, 9)


def wide(rng: Random, count: int) -> Expr:
    """A sum of extrema: each doubles or triples the cases."""
    one = (rng.choice([maximum, minimum])(linear(rng), linear(rng), linear(rng)) for _ in range(count))
    return sum(one, constant(0))


def deep(rng: Random, count: int) -> Expr:
    """Choices within choices, those of quotients among them."""

    def around(inner: Expr, _: int) -> Expr:
        made = (
            maximum(inner + linear(rng), linear(rng)),
            minimum(inner, linear(rng)),
            select(ge(inner, linear(rng)), inner + 1, linear(rng)),
            floordiv(inner, rng.choice([2, 3])) + linear(rng),
        )
        return rng.choice(made)

    return reduce(around, range(count), linear(rng))


@settings(max_examples=tries(4, nightly=400), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([wide, deep]))
def test_large_formulas_get_no_wrong_verdict(seed: int, make: Callable[[Random, int], Expr]) -> None:
    rng = Random(seed)
    claim: Condition = rng.choice([le, eq])(make(rng, 24), rng.choice([linear(rng), constant(200)]))
    proof = Prover().prove(claim, Domain(default_lower=RANGE[0], default_upper=RANGE[-1]))
    values = {claim.evaluate({"n": n}) for n in RANGE}
    wanted = {
        Verdict.ALWAYS_VALID: {True},
        Verdict.ALWAYS_INVALID: {False},
        Verdict.RUNTIME_CHECK: values if proof.unknown else {True, False},
    }
    assert values == wanted[proof.verdict]
    if proof.counterexample is not None:
        assert not claim.evaluate(proof.counterexample)

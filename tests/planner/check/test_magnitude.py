from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.check.validate import Magnitudes
from symalloc.prover.domain import Domain, SyntacticOrder
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import gt
from symalloc.size.expr import Expr, Symbol, constant, floordiv, mod, round_up
from tests.planner.test_overflow_guards import SIGNED, SIZES, B, M, N
from tests.scale import tries

EXPRS = (
    *SIZES,
    constant(-5),
    256 * N * B + 64 - 128 * M,
    minimum(64 * N - 1, 128 * M) * 3,
    -64 * N * N * B,
    mod(N - 5, 48) * 64 - floordiv(N, M + 1) * 64,
    floordiv(-N, 7),
    select(gt(N, M), 64 * N, -64 * M * B),
    maximum(N, maximum(M, 2 * N) + round_up(maximum(B, N), 64)),
)


@pytest.mark.parametrize("domain", [Domain(), SIGNED])
@settings(max_examples=tries(200, 4000))
@given(st.sampled_from(EXPRS), *[st.integers(-(2**40), 2**40) | st.integers(-80, 80)] * 3)
def test_no_value_exceeds_its_magnitude(domain: Domain, expr: Expr, b: int, n: int, m: int) -> None:
    binding = {"b": b, "n": n, "m": m}
    if domain is not SIGNED:
        binding = {name: abs(value) for name, value in binding.items()}
    binding["b"] = abs(b)
    polynomial, scale = Magnitudes(SyntacticOrder(domain)).scaled(expr)
    assert all(c > 0 for c in polynomial.terms.values())
    assert all(
        isinstance(atom, Symbol) == (domain is not SIGNED or atom.key == "b") for atom in polynomial.atoms
    )
    try:
        value = expr.evaluate(binding)
    except ZeroDivisionError:
        return
    if binding["m"] >= 0:  # divisors are taken to be at least 1
        assert scale * abs(value) <= polynomial.evaluate(binding)


def test_rounding_costs_less_than_a_unit() -> None:
    polynomial, scale = Magnitudes(SyntacticOrder(Domain())).scaled(round_up(4 * N, 64))
    assert str(polynomial) == "4*n + 63" and scale == 1

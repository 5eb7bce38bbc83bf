from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.plan.magnitude import Magnitudes
from symalloc.plan.sight import Sight
from symalloc.prove.domain import Domain
from symalloc.size.condition import gt
from symalloc.size.expr import Expr, constant, symbol
from symalloc.size.operations import floordiv, maximum, minimum, mod, round_up, select

B, N, M = symbol("b"), symbol("n"), symbol("m")
EXPRS = (
    constant(-5),
    round_up(4 * N, 64),
    256 * N * B + 64 - 128 * M,
    maximum(round_up(4 * (N - 3) * (M - 7), 64), 0),
    minimum(64 * N - 1, 128 * M) * 3,
    -64 * N * N * B,
    mod(N - 5, 48) * 64 - floordiv(N, M + 1) * 64,
    floordiv(-N, 7),
    select(gt(N, M), 64 * N, -64 * M * B),
    maximum(N, maximum(M, 2 * N) + round_up(maximum(B, N), 64)),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.sampled_from(EXPRS), *[st.integers(0, 2**40) | st.integers(0, 80)] * 3)
def test_no_value_exceeds_its_magnitude(expr: Expr, b: int, n: int, m: int) -> None:
    binding = {"b": b, "n": n, "m": m}
    bound = Magnitudes(Sight(Domain())).scaled(expr)
    assert bound is not None
    polynomial, scale = bound
    assert polynomial.is_polynomial and all(c > 0 for c in polynomial.terms.values())
    assert scale * abs(expr.evaluate(binding)) <= polynomial.evaluate(binding)


def test_a_symbol_that_can_be_negative_has_no_magnitude() -> None:
    assert Magnitudes(Sight(Domain(lower={"n": -1}))).scaled(64 * N) is None


def test_rounding_costs_less_than_a_unit() -> None:
    polynomial, scale = Magnitudes(Sight(Domain())).scaled(round_up(4 * N, 64)) or (constant(0), 1)
    assert str(polynomial) == "4*n + 63" and scale == 1

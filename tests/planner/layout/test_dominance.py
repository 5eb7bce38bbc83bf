from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.layout.dominance import Dominance
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum
from symalloc.size.condition import eq
from symalloc.size.expr import Expr, constant, floordiv, mod, round_up, symbol

N, M = symbol("n"), symbol("m")
PROVER = Prover()
SIZES = st.sampled_from(
    [constant(0), constant(4096), 64 * N, 64 * M, 128 * N * M, round_up(4 * N, 64), 64 * N - 64, mod(N, 48)]
)


def dominance(domain: Domain = Domain()) -> Dominance:  # noqa: B008 - frozen
    return Dominance(domain, PROVER, ("n", "m"))


@settings(max_examples=150)
@given(SIZES, SIZES, SIZES)
def test_what_reaches_another_does_so_everywhere(a: Expr, b: Expr, c: Expr) -> None:
    high, low = maximum(a, b), b + c
    if dominance().reaches(high, low):
        for point in ({"n": n, "m": m} for n in range(0, 130, 3) for m in (0, 1, 2, 63, 64, 500)):
            assert high.evaluate(point) >= low.evaluate(point)


def test_proof_goes_beyond_the_samples() -> None:
    spike = 64 * N - floordiv(64 * (N + 1), 5000)  # at most 64*n, and equal to it at every sample
    assert dominance().reaches(64 * N, spike)
    assert dominance().may_reach(M, mod(N, 2) + M - 1)
    assert not dominance().reaches(constant(4096), N), "at most 4096 at the samples only"


def test_alignment_is_folded_where_it_is_proved() -> None:
    assert dominance().align(64 * N + 128, 64) == 64 * N + 128
    assert dominance().align(N * N + N, 2) == N * N + N, "one of two neighbours is even"
    assert dominance().align(4 * N, 64) == round_up(4 * N, 64)
    sixteenths = Domain(assumptions=(eq(mod(N, 16), 0),))
    assert dominance(sixteenths).align(4 * N, 64) == 4 * N


def test_without_samples_the_prover_still_decides() -> None:
    far = Dominance(Domain(assumptions=(eq(N, 12345),)), PROVER, ("n",))
    assert far.reaches(N, constant(12345)) and not far.reaches(N, constant(12346))


def test_a_zero_divisor_at_a_sample_is_no_answer() -> None:
    ratio = floordiv(N, M - 7)
    assert dominance(Domain(lower={"m": 8})).reaches(N, ratio)
    assert not dominance().reaches(N, ratio), "at m = 7 it is not defined"


def test_maxima_of_rounded_sums_use_the_budget_up() -> None:
    prover = Prover()
    asked = Dominance(Domain(), prover, ("n",), prover_budget=8)
    for count in range(1, 9):
        rounded = round_up(10 * N * N, 64) + 256 * count * N
        high = maximum(rounded, round_up(8 * N * N, 64) + 1280 * N)
        assert asked.may_reach(high, rounded - count * N - 1)
        asked.reaches(high, rounded - count * N - 1)
    assert sum(prover.decided.values()) <= 2

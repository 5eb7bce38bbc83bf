from __future__ import annotations

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.plan_functions import LiveBytes, worst_ratio
from symalloc.prover.domain import Domain
from symalloc.size.choice import maximum, minimum
from symalloc.size.expr import floordiv, symbol

N, M, K = symbol("n"), symbol("m"), symbol("k")
LIVE = LiveBytes([Buffer(0, "a", 64 * N, ((0, 1),)), Buffer(1, "b", 64 * K, ((1, 2),))])
SIZE = 64 * maximum(N, K) + 64 * floordiv(minimum(N, K), (M - 3) * (M - 3) + 1)  # twice the floor at m = 3
NAMES = ("k", "m", "n")


def test_skewed_shapes_are_looked_at() -> None:
    assert 1.9 < worst_ratio(LIVE, SIZE, Domain(), NAMES) <= 2.0


def test_no_shape_outside_of_the_domain_is() -> None:
    assert worst_ratio(LIVE, SIZE, Domain(lower={"m": 40}), NAMES) < 1.01

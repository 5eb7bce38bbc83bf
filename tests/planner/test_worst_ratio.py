"""An arena over its floor, at the shapes that are looked at, against the definition."""

from __future__ import annotations

from hypothesis import assume, given, settings

from symalloc.planner.grid import grid_within, score_grid
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.stack import worst_ratio
from symalloc.prover.domain import Domain
from symalloc.size.choice import maximum, minimum
from symalloc.size.expr import floordiv, symbol
from tests.planner.brute_stackings import floor_at
from tests.planner.test_stack import problems

N, M, K = symbol("n"), symbol("m"), symbol("k")
BUFFERS = [Buffer(0, "a", 64 * N, ((0, 1),)), Buffer(1, "b", 64 * K + 64 * floordiv(M, 2**40), ((1, 2),))]
SIZE = 64 * maximum(N, K) + 64 * floordiv(minimum(N, K), (M - 3) * (M - 3) + 1)  # twice the floor at m = 3
EDGE = {"m": 3, "n": 50, "k": 50}


def test_shapes_that_are_given_are_looked_at() -> None:
    assert worst_ratio(BUFFERS, SIZE, {}, Domain(), [EDGE]) == 2.0


def test_no_shape_outside_of_the_domain_is() -> None:
    assert worst_ratio(BUFFERS, SIZE, {}, Domain(lower={"m": 40}), [EDGE]) < 1.01


@settings(max_examples=40)
@given(problems(most=8))
def test_it_is_over_the_floor_at_each_point(buffers: tuple[Buffer, ...]) -> None:
    size = sum((b.size for b in buffers), 64 * N)
    grid = score_grid(tuple(dict.fromkeys(b.size for b in buffers)), {})
    assume("n" in grid.names)
    grid = grid_within(Domain(), grid.names, grid.points)
    bindings = [grid.binding(index) for index in range(len(grid))]
    ratios = [size.evaluate(at) / max(floor_at(buffers, at), 1) for at in bindings]
    assert abs(worst_ratio(buffers, size, {}, Domain()) / max(1.0, *ratios) - 1) < 1e-9

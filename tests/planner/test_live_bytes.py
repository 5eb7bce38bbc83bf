"""The most bytes that are live together at given bindings, against the definition."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings

from symalloc.planner import plan_functions
from symalloc.planner.grid import Grid
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.plan_functions import LiveBytes
from symalloc.size.expr import constant, floordiv, symbol
from tests.planner.brute_stackings import floor_at
from tests.planner.test_stack import POINTS, problems

N = symbol("n")
NAMES = tuple(POINTS[0])
GRID = Grid(names=NAMES, points=tuple(tuple(point[name] for name in NAMES) for point in POINTS))


@pytest.mark.parametrize("counted", [0, plan_functions.MOST_KINDS])
@settings(max_examples=60)
@given(problems(most=12))
def test_it_is_the_floor_at_each_point(counted: int, buffers: tuple[Buffer, ...]) -> None:
    with patch.object(plan_functions, "MOST_KINDS", counted):
        found = list(LiveBytes(buffers).beside(constant(64), GRID))
    assert found == [(64, floor_at(buffers, binding)) for binding in POINTS]


def test_nothing_is_live_where_there_is_nothing() -> None:
    never = Buffer(id=0, name="b", size=constant(64), live=((3, 3),))
    assert list(LiveBytes((never,)).beside(constant(1), Grid(names=(), points=((),)))) == [(1, 0)]


def test_large_values_are_exact_and_undefined_ones_left_out() -> None:
    size = 2**20 * N**2 + 1
    live = LiveBytes([Buffer(id=i, name=str(i), size=size, live=((0, 1),)) for i in range(2)])
    grid = Grid(names=("n",), points=((0,), (2**20,), (3,)))
    large = [2 * (2**20 * n**2 + 1) for n in (0, 2**20, 3)]
    assert list(live.beside(2 * size, grid)) == list(zip(large, large, strict=True))
    assert list(live.beside(floordiv(N, N), grid)) == [(1, floor) for floor in large[1:]]

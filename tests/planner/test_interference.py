"""The floor against its definition."""

from __future__ import annotations

from hypothesis import given, settings

from symalloc.planner.interference import live_sums
from symalloc.planner.memory_plan import Buffer
from symalloc.size.expr import constant, highest
from tests.planner.brute_stackings import floor_at
from tests.planner.test_stack import POINTS, problems


@settings(max_examples=60)
@given(problems(most=12))
def test_it_is_the_largest_sum_over_all_positions(buffers: tuple[Buffer, ...]) -> None:
    sums = live_sums(buffers)
    for binding in POINTS:
        assert highest(sums, binding) == floor_at(buffers, binding)


def test_repeated_layers_have_few_sums() -> None:
    layers = tuple(
        Buffer(id=i, name=str(i), size=constant(64 * (i % 3)), live=((i, i + 3),)) for i in range(300)
    )
    assert live_sums(layers) == (constant(192),)


def test_nothing_is_live_where_there_is_nothing() -> None:
    assert highest(live_sums(()), {}) == 0
    never = Buffer(id=0, name="b", size=constant(64), live=((3, 3),))
    assert highest(live_sums((never,)), {}) == 0

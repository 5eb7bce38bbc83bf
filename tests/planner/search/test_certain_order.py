"""Orders that are seen to be at the floor are so at every shape; of few buffers most have one."""

from __future__ import annotations

from random import Random

import pytest

from symalloc.planner.interference import changes_of, most_at_once
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.certain_order import FEW, certain_order
from symalloc.planner.search.stacking import Stacking
from tests.planner.brute_stackings import floor_at
from tests.planner.search.test_stacking_search import POINTS, SIZES
from tests.scale import tries


def buffers_of(*lives: tuple[tuple[int, int], ...], random: Random) -> list[Buffer]:
    return [Buffer(id=i, name=f"b{i}", size=random.choice(SIZES), live=live) for i, live in enumerate(lives)]


def drawn(random: Random) -> list[Buffer]:
    """Three to eight buffers, some of them live in two intervals."""
    lives: list[tuple[tuple[int, int], ...]] = []
    for _ in range(random.randint(3, 8)):
        begin = random.randint(0, 9)
        end = begin + random.choice((1, 1, 2, 3, 9))
        twice = random.random() < 0.1
        lives.append(((begin, end), (end + 1, end + 2)) if twice else ((begin, end),))
    return buffers_of(*lives, random=random)


def order_of(buffers: list[Buffer]) -> list[int] | None:
    return certain_order(buffers, most_at_once(changes_of([b.live for b in buffers])))


def height(buffers: list[Buffer], order: list[int], binding: dict[str, int]) -> int:
    below = Stacking.of(order, buffers).below
    ends: dict[int, int] = {}
    for i in order:
        ends[i] = max((ends[j] for j in below[i]), default=0) + buffers[i].size.evaluate(binding)
    return max(ends.values())


def test_a_certain_order_is_at_the_floor_at_every_shape() -> None:
    random, found, count = Random(1), 0, tries(300, 5000)
    for _ in range(count):
        buffers = drawn(random)
        order = order_of(buffers)
        if order is not None:
            found += 1
            assert sorted(order) == list(range(len(buffers)))
            for binding in POINTS:
                assert height(buffers, order, binding) == floor_at(buffers, binding)
    assert count // 2 < found < count


@pytest.mark.parametrize(
    ("lives", "seen"),
    [
        ([((0, 2),), ((1, 4),), ((3, 6),), ((5, 7),)], True),  # a chain
        ([((0, 9),), ((1, 4),), ((3, 6),), ((5, 7),)], True),  # the same beside one that outlives it
        ([((0, 1), (4, 5)), ((0, 1), (2, 3)), ((2, 3), (4, 5))], False),  # three that meet two by two
        ([((0, 3),), ((2, 6),), ((2, 5),), ((5, 8),), ((7, 9),)], False),  # three, none of which meets all
    ],
)
def test_what_is_seen(lives: list[tuple[tuple[int, int], ...]], seen: bool) -> None:
    assert (order_of(buffers_of(*lives, random=Random(1))) is not None) is seen


def test_many_buffers_are_taken_apart_where_two_are_live_at_once() -> None:
    chain = [((i, i + 2),) for i in range(2 * FEW)]
    assert order_of(buffers_of(*chain, random=Random(1))) is not None
    assert order_of(buffers_of(((0, 3 * FEW),), *chain, random=Random(1))) is None

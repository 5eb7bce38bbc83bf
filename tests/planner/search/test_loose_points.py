"""Stackings that are at the floor on a grid are looked at between its points, too."""

from __future__ import annotations

from random import Random

import pytest

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.loose_points import loose_points
from symalloc.planner.search.search_instance import SearchInstance
from symalloc.planner.search.stacking_search import PERFECT, SearchBudget, search
from tests.planner.brute_stackings import floor_at
from tests.planner.search.test_stacking_search import SIZES, height

LOOSE_BETWEEN = (37, 84, 168, 185, 332)  # problems that one search of the grid leaves loose elsewhere


def drawn(seed: int) -> tuple[Buffer, ...]:
    random, found = Random(seed), []
    sizes = (SIZES[0], SIZES[1], SIZES[6], 3 * SIZES[6], SIZES[7], SIZES[4], 16 * SIZES[3], SIZES[5])
    for number in range(random.randint(10, 16)):
        begin = random.randint(0, 14)
        size = random.choice(sizes)
        live = ((begin, begin + random.randint(1, 5)),)
        found.append(Buffer(id=number, name=f"b{number}", size=size, live=live))
    return tuple(found)


@pytest.mark.parametrize("seed", LOOSE_BETWEEN)
def test_what_is_loose_between_the_points_of_the_grid_is_stacked_anew(seed: int) -> None:
    buffers, random = drawn(seed), Random(seed)
    found = search(buffers, {}, SearchBudget.of("normal"))
    assert found.worst <= PERFECT
    for _ in range(300):
        at = {"n": random.randint(1, 60), "m": random.randint(1, 60)}
        assert height(found, buffers, at) == floor_at(buffers, at)


def test_the_ratio_that_is_told_is_the_worst_that_was_seen() -> None:
    """None of the stackings found for this problem is at the floor at all points that are looked at."""
    buffers = drawn(216)
    found = search(buffers, {}, SearchBudget.of("normal"))
    problem = SearchInstance.of(buffers, {})
    loose = loose_points(problem, found.regimes, {})
    assert loose.points and found.worst >= loose.worst > PERFECT
    at = dict(zip(problem.grid.names, loose.points[0], strict=True))
    assert height(found, buffers, at) / floor_at(buffers, at) == pytest.approx(loose.worst)

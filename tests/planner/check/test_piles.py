"""The pairs that lie directly on each other: each live together, and enough of them to reach all others."""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.check.obligations import directly_above
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.offsets import assemble
from symalloc.planner.stack import Stacking
from symalloc.prover.domain import Domain
from symalloc.size.expr import constant
from tests.planner.brute_stackings import together
from tests.planner.test_stack import problems
from tests.scale import tries


@settings(max_examples=tries(30, 400))
@given(problems(most=12), st.randoms(use_true_random=False))
def test_all_that_live_together_are_reached(buffers: tuple[Buffer, ...], random: Random) -> None:
    order = random.sample(range(len(buffers)), len(buffers))
    arena = assemble(buffers, Stacking.of(order, buffers), Domain())
    above: dict[int, set[int]] = {i: set() for i in range(len(buffers))}
    for low, high in directly_above(arena.placements):
        assert together(buffers[low], buffers[high])
        above[low].add(high)
    for low, high in combinations(range(len(buffers)), 2):
        if together(buffers[low], buffers[high]):
            assert reaches(above, low, high) or reaches(above, high, low)


def reaches(above: dict[int, set[int]], low: int, high: int) -> bool:
    return high in above[low] or any(reaches(above, other, high) for other in above[low])


def test_there_are_few_however_many_live_together() -> None:
    buffers = [Buffer(id=i, name=str(i), size=constant(64), live=((i, 1000),)) for i in range(300)]
    arena = assemble(buffers, Stacking.of(range(300), buffers), Domain())
    assert len(list(directly_above(arena.placements))) == 299

"""Packings in one pass through time: disjoint at every position, and at the floor where all are alike."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.crowded import _given_out, crowded_orders
from symalloc.planner.search.search_instance import MOST_PAIRS, SearchInstance
from symalloc.planner.search.stacking_search import SearchBudget, search
from symalloc.size.expr import Expr, round_up, symbol
from tests.planner.search.test_stacking_search import problems
from tests.scale import tries

N = symbol("n")


@settings(max_examples=tries(40, 500))
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(0, 300)), max_size=30))
def test_what_is_live_together_is_apart(rows: list[tuple[int, int, int]]) -> None:
    lives, sizes = [(begin, begin + length) for begin, length, _ in rows], [size for *_, size in rows]
    offsets = _given_out(lives, sizes)
    for i, (begin, end) in enumerate(lives):
        for j, (other, last) in enumerate(lives[:i]):
            if max(begin, other) < min(end, last):
                assert (
                    offsets[i] + sizes[i] <= offsets[j]
                    or offsets[j] + sizes[j] <= offsets[i]
                    or not (sizes[i] and sizes[j])
                )


@settings(max_examples=tries(15, 100))
@given(problems(most=10))
def test_every_order_names_each_buffer_once(buffers: tuple[Buffer, ...]) -> None:
    problem = SearchInstance.of(buffers, {})
    for order in crowded_orders(problem, [0, len(problem.grid) - 1]):
        assert sorted(order) == list(range(len(buffers)))


def buffer(index: int, size: Expr, begin: int, end: int) -> Buffer:
    return Buffer(id=index, name=f"b{index}", size=size, live=((begin, end),))


def test_hundreds_live_at_once_are_at_the_floor() -> None:
    random, count = Random(1), 600
    fan = [buffer(i, round_up(4 * N * random.randint(1, 9), 64), i, count + i) for i in range(count)]
    total = [buffer(count + i, round_up(4 * N, 64), count + i, count + i + 2) for i in range(count)]
    assert count * count / 2 > MOST_PAIRS
    assert search([*fan, *total], {}, SearchBudget.of("quick")).score.worst == 1.0

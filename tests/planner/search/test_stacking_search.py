"""The search against all stackings of tiny problems, and what it promises of every problem."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.stacking_search import SearchBudget, SearchResult, search
from symalloc.size.expr import Expr, constant, symbol
from tests.planner.brute_stackings import all_heights, floor_at
from tests.scale import tries

N, M = symbol("n"), symbol("m")
SIZES = (64 * N, 128 * N, 192 * N, constant(64), constant(4096), 64 * N * N, 64 * M, 64 * N * M)
POINTS = [{"n": n, "m": m} for n in (1, 5, 32, 300, 5000) for m in (1, 17, 900)]


@st.composite
def live_ranges(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    begin = draw(st.integers(0, 8))
    end = draw(st.integers(begin + 1, 10))
    if end - begin > 3 and draw(st.booleans()):
        return (begin, begin + 1), (begin + 2, end)
    return ((begin, end),)


@st.composite
def problems(draw: st.DrawFn, sizes: tuple[Expr, ...] = SIZES, most: int = 6) -> tuple[Buffer, ...]:
    chosen = draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=most))
    return tuple(
        Buffer(id=7 * i, name=f"b{i}", size=s, live=draw(live_ranges())) for i, s in enumerate(chosen)
    )


def found_for(buffers: tuple[Buffer, ...], effort: SearchBudget) -> SearchResult:
    return search(buffers, {}, effort)


def height(found: SearchResult, buffers: tuple[Buffer, ...], binding: dict[str, int]) -> int:
    """The height at `binding`, from the order and the lists below that the answer holds."""
    sizes = [b.size.evaluate(binding) for b in buffers]
    chosen = next(s for c, s in found.regimes if c is None or c.evaluate(binding))
    tops: dict[int, int] = {}
    for i in chosen.order:
        tops[i] = max((tops[j] for j in chosen.below[i]), default=0) + sizes[i]
    return max(tops.values(), default=0)


def sizes_of(multiples: list[int]) -> tuple[Expr, ...]:
    return tuple(constant(64 * m) for m in multiples)


@settings(max_examples=tries(15, 300))
@given(problems(sizes=sizes_of([1, 2, 3, 5, 7, 11]), most=6))
def test_a_static_problem_gets_the_lowest_of_all_stackings(buffers: tuple[Buffer, ...]) -> None:
    found = found_for(buffers, SearchBudget.of("normal"))
    lowest = min(all_heights(buffers, [{}]))[0]
    assert height(found, buffers, {}) == lowest
    assert found.score.worst == pytest.approx(lowest / floor_at(buffers, {}))


@settings(max_examples=tries(15, 300))
@given(problems())
def test_where_one_stacking_is_at_the_floor_everywhere_one_is_found(buffers: tuple[Buffer, ...]) -> None:
    floors = tuple(floor_at(buffers, p) for p in POINTS)
    found = found_for(buffers, SearchBudget.of("normal"))
    if any(heights == floors for heights in all_heights(buffers, POINTS)):
        assert tuple(height(found, buffers, p) for p in POINTS) == floors


@settings(max_examples=tries(10, 100))
@given(problems(most=12))
def test_an_answer_names_each_buffer_once_and_orders_each_pair(buffers: tuple[Buffer, ...]) -> None:
    neighbours = interference(buffers)
    for _, stacking in found_for(buffers, SearchBudget.of("quick")).regimes:
        assert sorted(stacking.order) == list(range(len(buffers)))
        rank = {i: position for position, i in enumerate(stacking.order)}
        reached: dict[int, set[int]] = {}
        for i in stacking.order:
            assert set(stacking.below[i]) <= set(neighbours[i])
            reached[i] = {j for k in stacking.below[i] for j in (k, *reached[k])}
            assert {j for j in neighbours[i] if rank[j] < rank[i]} <= reached[i]


@settings(max_examples=tries(10, 200))
@given(problems(most=tries(7, 10)), st.integers(0, 3))
def test_the_same_seed_gives_the_same_answer(buffers: tuple[Buffer, ...], seed: int) -> None:
    effort = SearchBudget.of("quick", seed=seed)
    assert found_for(buffers, effort).regimes == found_for(buffers, effort).regimes


def test_no_buffers_make_an_empty_stacking() -> None:
    found = found_for((), SearchBudget.of("quick"))
    assert [s.order for _, s in found.regimes] == [()]


def pieces(
    rectangle: tuple[int, int, int, int], cuts: int, random: Random
) -> list[tuple[int, int, int, int]]:
    """(begin, end, bottom, top) of the pieces of a rectangle that is cut again and again."""
    found = [rectangle]
    while cuts:
        begin, end, bottom, top = found.pop(random.randrange(len(found)))
        at, level = random.randint(begin, end), random.randint(bottom, top)
        across = random.random() < 0.5
        parts = [(begin, at, bottom, top), (at, end, bottom, top)]
        parts = [(begin, end, bottom, level), (begin, end, level, top)] if across else parts
        whole = all(b < e and low < high for b, e, low, high in parts)
        found += parts if whole else [(begin, end, bottom, top)]
        cuts -= whole
    return found


def test_sizes_that_grow_alike_are_packed_exactly_before_anything_is_improved() -> None:
    cut = pieces((0, 30, 0, 60), 55, Random(2))
    buffers = tuple(
        Buffer(id=i, name=f"b{i}", size=64 * (top - bottom) * N, live=((begin, end),))
        for i, (begin, end, bottom, top) in enumerate(cut)
    )
    greedy = found_for(buffers, SearchBudget(work=0, exact=0))
    assert greedy.score.worst > 1
    found = found_for(buffers, SearchBudget(work=1_000_000, exact=100_000_000))
    assert found.score.worst == 1
    assert found.steps < 10_000  # local search takes more, and stays above 1

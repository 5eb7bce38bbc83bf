"""The search against all stackings of tiny problems, what it promises of every problem, and its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer, PlanBudget
from symalloc.planner.stack import (
    Score,
    ScoredStacking,
    SearchBudget,
    Stacking,
    StackingProblem,
    improved,
    judged,
    packed_order,
    search,
)
from symalloc.size.expr import Expr, constant, round_up, symbol
from tests.planner.brute_stackings import all_heights, floor_at, live_ranges, pile
from tests.scale import tries

N, M = symbol("n"), symbol("m")
SIZES = (64 * N, 128 * N, 192 * N, constant(64), constant(4096), 64 * N * N, 64 * M, 64 * N * M)
POINTS = [{"n": n, "m": m} for n in (1, 5, 32, 300, 5000) for m in (1, 17, 900)]


@st.composite
def problems(draw: st.DrawFn, sizes: tuple[Expr, ...] = SIZES, most: int = 6) -> tuple[Buffer, ...]:
    chosen = draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=most))
    return tuple(
        Buffer(id=7 * i, name=f"b{i}", size=s, live=draw(live_ranges(10))) for i, s in enumerate(chosen)
    )


def found_for(buffers: tuple[Buffer, ...], effort: SearchBudget) -> ScoredStacking:
    return search(buffers, {}, effort)


def height(found: ScoredStacking, buffers: tuple[Buffer, ...], binding: dict[str, int]) -> int:
    """The height at `binding`, from the order and the lists below that the answer holds."""
    sizes = [b.size.evaluate(binding) for b in buffers]
    tops: dict[int, int] = {}
    for i in found.stacking.order:
        tops[i] = max((tops[j] for j in found.stacking.below[i]), default=0) + sizes[i]
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
    for budget in (SearchBudget(), SearchBudget(packing=0)):
        stacking = found_for(buffers, budget).stacking
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
    assert found_for(buffers, effort) == found_for(buffers, effort)


def test_no_buffers_make_an_empty_stacking() -> None:
    found = found_for((), SearchBudget.of("quick"))
    assert found.stacking.order == ()


def instance(buffers: tuple[Buffer, ...]) -> StackingProblem:
    return StackingProblem.of(buffers, {}, most_pairs=1000)


@settings(max_examples=40)
@given(problems(most=10), st.randoms(use_true_random=False))
def test_ratios_are_those_of_the_pile(buffers: tuple[Buffer, ...], random: Random) -> None:
    problem = instance(buffers)
    order = random.sample(range(len(buffers)), len(buffers))
    found = judged(problem, order)
    assert found.stacking == Stacking.of(order, buffers)
    for point in range(0, len(problem.grid), 7):
        binding = {"n": 1, "m": 1, **problem.grid.binding(point)}
        sizes = {b.id: b.size.evaluate(binding) for b in buffers}
        offsets = pile([buffers[i] for i in order], sizes)
        height = max(offsets[b.id] + sizes[b.id] for b in buffers)
        assert abs(found.ratios[point] - height / max(floor_at(buffers, binding), 1)) < 1e-9


@settings(max_examples=40)
@given(problems(most=10))
def test_a_greedy_packing_stacks_each_buffer_once(buffers: tuple[Buffer, ...]) -> None:
    problem = instance(buffers)
    sizes = problem.sizes_at(len(problem.grid) // 2)
    assert sorted(packed_order(problem, sizes)) == list(range(len(buffers)))


def test_sizes_beyond_64_bits_are_packed_in_larger_units() -> None:
    sizes = (1 << 62, 1 << 61, 1 << 60)
    buffers = tuple(
        Buffer(id=i, name=f"b{i}", size=constant(size), live=((i, 2 + i),)) for i, size in enumerate(sizes)
    )
    found = found_for(buffers, SearchBudget())
    assert found.score.worst == 1 and height(found, buffers, {}) == (1 << 62) + (1 << 61)


@settings(max_examples=20)
@given(problems(most=10), st.permutations(range(10)), st.integers(0, 2**63 - 1))
def test_local_search_never_makes_it_worse(
    buffers: tuple[Buffer, ...], permutation: Sequence[int], seed: int
) -> None:
    problem = instance(buffers)
    order = [i for i in permutation if i < len(buffers)]
    points = [0, len(problem.grid) - 1]
    better = improved(problem, order, points, target=1.0, steps=30, seed=seed, budget=PlanBudget())
    assert sorted(better) == sorted(order)
    before, after = (judged(problem, o).ratios[points] for o in (order, better))
    # the mean counts for a tenth of the worst
    assert after.max() + 0.1 * after.mean() <= before.max() + 0.1 * before.mean() + 1e-9


def test_sizes_beyond_floats_are_left_as_they_are() -> None:
    buffers = tuple(Buffer(id=i, name=f"b{i}", size=constant(1 << 1023), live=()) for i in range(3))
    found = improved(instance(buffers), [2, 0, 1], [0], target=0.0, steps=9, seed=1, budget=PlanBudget())
    assert found == [2, 0, 1]


def test_scores_compare_by_the_worst_first() -> None:
    assert Score(1.1, 1.0) < Score(1.2, 1.0) and Score(1.1, 1.0) < Score(1.1, 1.05)
    assert judged(instance(()), []).score == Score(1.0, 1.0)


def test_hundreds_live_at_once_are_at_the_floor_though_no_pair_is_looked_at() -> None:
    random, count = Random(1), 600
    sizes = [round_up(4 * N * random.randint(1, 9), 64) for _ in range(count)]
    fan = [Buffer(id=i, name=f"b{i}", size=size, live=((i, count + i),)) for i, size in enumerate(sizes)]
    total = [replace(b, size=round_up(4 * N, 64), live=((count + b.id, count + b.id + 2),)) for b in fan]
    assert found_for((*fan, *total), SearchBudget(packing=1000)).score.worst == 1.0

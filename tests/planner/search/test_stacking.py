"""Heights by levels against piling one buffer after the other."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.search.greedy import HEURISTICS, by_offset, place
from symalloc.planner.search.local_search import improve
from symalloc.planner.search.search_instance import SearchInstance, representatives
from symalloc.planner.search.stacking import Score, Stacking, heights, ratios
from symalloc.size.expr import constant
from tests.planner.brute_stackings import floor_at, pile, together
from tests.planner.search.test_stacking_search import problems


def instance(buffers: tuple[Buffer, ...]) -> SearchInstance:
    return SearchInstance.of(buffers, {})


def stacked(problem: SearchInstance, order: Sequence[int]) -> Stacking:
    return Stacking.at(order, problem.changes)


@settings(max_examples=40)
@given(problems(most=10), st.randoms(use_true_random=False))
def test_heights_and_ratios_are_those_of_the_pile(buffers: tuple[Buffer, ...], random: Random) -> None:
    problem = instance(buffers)
    order = random.sample(range(len(buffers)), len(buffers))
    tops, found = heights(problem, stacked(problem, order)), ratios(problem, stacked(problem, order))
    for point in range(0, len(problem.grid), 7):
        binding = {"n": 1, "m": 1, **problem.grid.binding(point)}
        sizes = {b.id: b.size.evaluate(binding) for b in buffers}
        offsets = pile([buffers[i] for i in order], sizes)
        height = max(offsets[b.id] + sizes[b.id] for b in buffers)
        assert tops[point] == height
        assert abs(found[point] - height / max(floor_at(buffers, binding), 1)) < 1e-9


@settings(max_examples=40)
@given(problems(most=10))
def test_greedy_packings_are_disjoint_and_pile_no_higher(buffers: tuple[Buffer, ...]) -> None:
    problem = instance(buffers)
    point = len(problem.grid) // 2
    sizes = problem.sizes_at(point)
    for name, best_fit in HEURISTICS:
        offsets = place(problem, sizes, name, best_fit=best_fit)
        for i, a in enumerate(buffers):
            for j, b in enumerate(buffers[:i]):
                if together(a, b):
                    assert offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
        highest = max(o + s for o, s in zip(offsets, sizes, strict=True))
        assert heights(problem, stacked(problem, by_offset(offsets, sizes)))[point] <= highest


@settings(max_examples=20)
@given(problems(most=10), st.permutations(range(10)), st.integers(0, 2**63 - 1))
def test_local_search_never_makes_it_worse(
    buffers: tuple[Buffer, ...], permutation: Sequence[int], seed: int
) -> None:
    problem = instance(buffers)
    order = [i for i in permutation if i < len(buffers)]
    points = [0, len(problem.grid) - 1]
    better, steps = improve(
        problem,
        order,
        points,
        target=1.0,
        steps=30,
        seed=seed,
        budget=PlanBudget(),
    )
    assert sorted(better) == sorted(order) and steps <= 30
    before, after = (ratios(problem, stacked(problem, o))[points] for o in (order, better))
    # the mean counts for a tenth of the worst
    assert after.max() + 0.1 * after.mean() <= before.max() + 0.1 * before.mean() + 1e-9


def test_a_local_search_without_steps_gives_back_what_it_got() -> None:
    problem = instance((Buffer(id=0, name="b", size=constant(64), live=((0, 1),)),))
    assert improve(problem, [0], [0], target=0.0, steps=0, seed=0, budget=PlanBudget()) == ([0], 0)


@settings(max_examples=30)
@given(problems(most=8), st.integers(1, 20))
def test_representatives_are_different_points(buffers: tuple[Buffer, ...], most: int) -> None:
    problem = instance(buffers)
    points = representatives(problem, {"n": (1, 16)}, most)
    assert 1 <= len(points) == len(set(points)) <= most
    assert all(0 <= p < len(problem.grid) for p in points)
    if "n" in problem.grid.names:
        assert 8 <= problem.grid.binding(points[0])["n"] <= 32, "near the declared bound"


def test_scores_compare_by_the_worst_first() -> None:
    assert Score(1.1, 1.0) < Score(1.2, 1.0) and Score(1.1, 1.0) < Score(1.1, 1.05)
    problem = instance(())
    assert Score.of(ratios(problem, stacked(problem, []))) == Score(1.0, 1.0)

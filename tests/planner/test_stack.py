"""The search against all stackings of tiny problems, what it promises of every problem, and its parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer, PlanBudget
from symalloc.planner.stack import ScoredStacking, SearchBudget, StackingProblem, improved, judged, search
from symalloc.size.expr import Expr, constant, round_up, symbol
from tests.planner.brute_stackings import all_heights, buffer, floor_at, live_ranges, together
from tests.scale import tries

N, M = symbol("n"), symbol("m")
SIZES = (64 * N, 128 * N, 192 * N, constant(64), constant(4096), 64 * N * N, 64 * M, 64 * N * M)
POINTS = [{"n": n, "m": m} for n in (1, 5, 32, 300, 5000) for m in (1, 17, 900)]


@st.composite
def problems(draw: st.DrawFn, sizes: tuple[Expr, ...] = SIZES, most: int = 6) -> tuple[Buffer, ...]:
    chosen = draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=most))
    return tuple(buffer(7 * i, size, *draw(live_ranges(10))) for i, size in enumerate(chosen))


def height(found: ScoredStacking, buffers: tuple[Buffer, ...], binding: dict[str, int]) -> int:
    """The height at `binding`, from the order and the lists below that the answer holds."""
    sizes = [b.size.evaluate(binding) for b in buffers]
    tops: dict[int, int] = {}
    for i in found.stacking.order:
        tops[i] = max((tops[j] for j in found.stacking.below[i]), default=0) + sizes[i]
    return max(tops.values(), default=0)


@settings(max_examples=tries(15, 300))
@given(problems())
def test_where_one_stacking_is_at_the_floor_everywhere_one_is_found(buffers: tuple[Buffer, ...]) -> None:
    floors = tuple(floor_at(buffers, p) for p in POINTS)
    found = search(buffers, {}, SearchBudget.of("normal"))
    if any(heights == floors for heights in all_heights(buffers, POINTS)):
        assert tuple(height(found, buffers, p) for p in POINTS) == floors


@settings(max_examples=40)
@given(problems(most=8))
def test_interference_is_what_comparing_all_pairs_gives(buffers: tuple[Buffer, ...]) -> None:
    found = interference(buffers)
    for (i, one), (j, other) in combinations(enumerate(buffers), 2):
        assert (j in found[i]) == (i in found[j]) == together(one, other)


def instance(buffers: tuple[Buffer, ...]) -> StackingProblem:
    return StackingProblem.of(buffers, {}, most_pairs=1000)


def test_sizes_beyond_64_bits_are_packed_in_larger_units() -> None:
    sizes = (1 << 62, 1 << 61, 1 << 60)
    buffers = tuple(buffer(i, size, (i, 2 + i)) for i, size in enumerate(sizes))
    found = search(buffers, {}, SearchBudget())
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
    buffers = tuple(buffer(i, 1 << 1023) for i in range(3))
    found = improved(instance(buffers), [2, 0, 1], [0], target=0.0, steps=9, seed=1, budget=PlanBudget())
    assert found == [2, 0, 1]


def test_hundreds_live_at_once_are_at_the_floor_though_no_pair_is_looked_at() -> None:
    random, count = Random(1), 600
    sizes = [round_up(4 * N * random.randint(1, 9), 64) for _ in range(count)]
    fan = [buffer(i, size, (i, count + i)) for i, size in enumerate(sizes)]
    total = [buffer(b.id, round_up(4 * N, 64), (count + b.id, count + b.id + 2)) for b in fan]
    assert search((*fan, *total), {}, SearchBudget(packing=1000)).score.worst == 1.0

"""The search on the native library against the one in Python: alike to the last bit."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.search import native_stacking
from symalloc.planner.search.greedy import HEURISTICS, place
from symalloc.planner.search.local_search import improve
from symalloc.planner.search.search_instance import SearchInstance
from symalloc.planner.search.split_mix import SplitMix64
from symalloc.planner.search.stacking import judged
from symalloc.planner.search.stacking_search import SearchBudget, search
from symalloc.size.expr import constant
from symalloc.size.parse import parse_expr
from tests.planner.search.test_stacking_search import problems
from tests.pool.library import need_native

SIZES = ("4*n", "12*n + 64", "n**2", "(n + 3)//4*64", "4096", "max(n, 100)*8", "0", "8*n - 40")


@pytest.fixture(autouse=True, scope="module")
def native() -> None:
    """The installed library, else one built for the tests."""
    need_native()


def many(seed: int, count: int) -> tuple[Buffer, ...]:
    """Buffers over one symbol, of which a dozen are live together."""
    random = Random(seed)
    begins = [random.randrange(count) for _ in range(count)]
    return tuple(
        Buffer(
            id=i,
            name=f"b{i}",
            size=parse_expr(random.choice(SIZES)),
            live=((begin, begin + random.randint(1, 20)),),
        )
        for i, begin in enumerate(begins)
    )


def assert_alike(
    buffers: tuple[Buffer, ...], order: list[int], seed: int, steps: int, allowed: float = inf
) -> None:
    """The same stacking, steps and work."""
    problem = SearchInstance.of(buffers, {})
    assert problem.graph is not None
    points = sorted({0, len(problem.grid) // 2, len(problem.grid) - 1})
    found = []
    for one in (problem, replace(problem, graph=None)):
        budget = PlanBudget(allowed)
        found.append(
            (improve(one, order, points, target=1.0, steps=steps, seed=seed, budget=budget), budget.spent)
        )
    assert found[0] == found[1]


def assert_judged_and_placed_alike(buffers: tuple[Buffer, ...], order: list[int]) -> None:
    """The same stacking, ratios to the last bit, and packings by each heuristic."""
    problem = SearchInstance.of(buffers, {})
    plain = replace(problem, graph=None)
    (stacking, values), (expected, ratios) = judged(problem, order), judged(plain, order)
    assert stacking == expected
    assert np.array_equal(values, ratios)
    sizes = [max(size, 0) for size in problem.sizes_at(len(problem.grid) // 2)]
    for name, best_fit in HEURISTICS:
        assert place(problem, sizes, name, best_fit=best_fit) == place(plain, sizes, name, best_fit=best_fit)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problems(most=10), st.permutations(range(10)))
def test_small_stackings_are_judged_and_placed_as_in_python(
    buffers: tuple[Buffer, ...], permutation: list[int]
) -> None:
    assert_judged_and_placed_alike(buffers, [i for i in permutation if i < len(buffers)])


@pytest.mark.parametrize("seed", range(3))
def test_large_stackings_are_judged_and_placed_as_in_python(seed: int) -> None:
    assert_judged_and_placed_alike(many(seed, 100), Random(seed).sample(range(100), 100))


def test_sizes_beyond_64_bits_are_placed_in_python() -> None:
    buffers = tuple(Buffer(id=i, name=f"b{i}", size=constant(1 << 62), live=((0, 1 + i),)) for i in range(3))
    problem = SearchInstance.of(buffers, {})
    offsets = place(problem, problem.sizes_at(0), "size", best_fit=True)
    assert sorted(offsets) == [0, 1 << 62, 2 << 62]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problems(most=10), st.permutations(range(10)), st.integers(0, 2**63 - 1), st.integers(0, 30))
def test_small_stackings_are_improved_as_in_python(
    buffers: tuple[Buffer, ...], permutation: list[int], seed: int, steps: int
) -> None:
    assert_alike(buffers, [i for i in permutation if i < len(buffers)], seed, steps)


@pytest.mark.parametrize(("seed", "allowed"), [(0, inf), (1, inf), (2, 200_000), (3, 50_000)])
def test_large_stackings_are_improved_as_in_python(seed: int, allowed: float) -> None:
    """Until the steps end, or the budget does."""
    assert_alike(many(seed, 100), Random(seed).sample(range(100), 100), seed, 40, allowed)


@pytest.mark.parametrize("seed", range(3))
def test_a_whole_search_finds_the_same_without_the_library(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = SearchBudget(seed=seed, exact=0)
    found = search(many(seed, 60), {}, budget)
    assert found.steps > 20, "local search had its part"
    monkeypatch.setattr(native_stacking, "load_library", lambda: "it is missing")
    assert search(many(seed, 60), {}, budget) == found


def test_sizes_beyond_floats_are_left_as_they_are() -> None:
    buffers = tuple(Buffer(id=i, name=f"b{i}", size=constant(1 << 1023), live=()) for i in range(3))
    problem = SearchInstance.of(buffers, {})
    found = improve(problem, [2, 0, 1], [0], target=0.0, steps=9, seed=1, budget=PlanBudget())
    assert found == ([2, 0, 1], 0)


def test_the_generator_draws_the_numbers_of_its_authors() -> None:
    """The first three of SplitMix64 from the seed 1234567, which its reference implementation gives."""
    random = SplitMix64(1234567)
    assert [random.next() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(), min_size=1, max_size=9))
def test_what_it_draws_lies_within(seed: int, items: list[int]) -> None:
    random = SplitMix64(seed)
    assert 0.0 <= random.random() < 1.0
    assert random.choice(items) in items
    assert sorted(random.sample(items, len(items))) == sorted(items)
    assert random.weighted([0.0, 1.0, 0.0]) == 1

"""Choosing between stackings by the shape."""

from __future__ import annotations

import numpy as np
import pytest

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.regimes import split
from symalloc.planner.search.search_instance import SearchInstance
from symalloc.planner.search.stacking import Score
from symalloc.size.expr import Expr, symbol

N, M = symbol("n"), symbol("m")


def instance(*sizes: Expr) -> SearchInstance:
    buffers = tuple(Buffer(id=i, name=str(i), size=s, live=((i, i + 2),)) for i, s in enumerate(sizes))
    return SearchInstance.of(buffers, {})


def good_where(
    problem: SearchInstance, truth: list[bool]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.where(truth, 1.0, 1.5)


def test_a_threshold_on_a_symbol_is_found() -> None:
    problem = instance(64 * N)
    low = [point[0] <= 64 for point in problem.grid.points]
    found = split(problem, [good_where(problem, low), good_where(problem, [not x for x in low])], most=3)
    assert [str(c) for c in found.conditions] == ["n <= 64"]
    assert (found.choices, found.score) == ((0, 1), Score(1.0, 1.0))


def test_a_comparison_of_two_sizes_is_found() -> None:
    problem = instance(64 * N, 128 * M)
    less = [n <= 2 * m for m, n in problem.grid.points]
    found = split(problem, [good_where(problem, less), good_where(problem, [not x for x in less])], most=2)
    assert found.score == Score(1.0, 1.0)
    taken = [
        found.choices[0] if found.conditions[0].evaluate(problem.grid.binding(i)) else found.choices[1]
        for i in range(len(problem.grid))
    ]
    assert taken == [0 if x else 1 for x in less]


def test_three_stackings_where_two_are_not_enough() -> None:
    problem = instance(64 * N)
    parts = [
        [n <= 8 for (n,) in problem.grid.points],
        [8 < n <= 512 for (n,) in problem.grid.points],
        [n > 512 for (n,) in problem.grid.points],
    ]
    candidates = [good_where(problem, part) for part in parts]
    assert split(problem, candidates, most=2).score.worst == 1.5
    found = split(problem, candidates, most=3)
    assert found.score == Score(1.0, 1.0) and len(found.choices) == 3


@pytest.mark.parametrize("most", [1, 4])
def test_one_that_is_best_everywhere_stands_alone(most: int) -> None:
    problem = instance(64 * N)
    best = np.full(len(problem.grid), 1.2)
    found = split(problem, [best + 0.1, best, best + 0.2], most=most)
    assert (found.conditions, found.choices) == ((), (1,))

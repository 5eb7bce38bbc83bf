"""Judges stackings over the whole grid at once.

A stacking is an order here, bottom first; of two buffers that interfere, the earlier lies below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from symalloc.planner.search.grid import Values
from symalloc.planner.search.search_instance import SearchInstance


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Height over floor, 1 at best; the lesser is the better."""

    worst: float
    mean: float


def ratios(problem: SearchInstance, order: Sequence[int]) -> Values:
    """Height over floor at each point of the grid."""
    return np.maximum(heights(problem, order) / problem.floors, 1.0)


def score(values: Values) -> Score:
    """The score of these ratios, rounded so that noise in the last digits decides nothing."""
    return Score(round(float(values.max()), 9), round(float(values.mean()), 9))


def heights(problem: SearchInstance, order: Sequence[int]) -> Values:
    """The height of the stacking at each point of the grid, in bytes.

    Buffers of one size that lie on the same ends end together: layers repeat, so there are few different
    ends.
    """
    ends_of = [-1] * len(problem)
    known: dict[tuple[int, frozenset[int]], int] = {}
    for i in order:
        under = frozenset([ends_of[j] for j in problem.adjacent[i] if ends_of[j] >= 0])
        ends_of[i] = known.setdefault((problem.kinds[i], under), len(known))
    ends = np.zeros((len(known), len(problem.grid)))
    for row, (kind, under) in enumerate(known):
        ends[row] = problem.values[kind]
        if under:
            ends[row] += ends[list(under)].max(axis=0)
    top: Values = ends.max(axis=0, initial=0.0)
    return top

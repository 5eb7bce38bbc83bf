"""Stacking: an order of the buffers, bottom first, that says which of two interfering ones lies below.

A stacking taken from a packing at one binding is right for every binding: offsets that follow from it
keep each pair apart whatever the sizes; only the height of the arena varies.  It is judged over the whole
grid of a search instance at once.  Buffers go by their index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from symalloc.planner.interference import Changes, changes_of, resting_on
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.grid import Values
from symalloc.planner.search.native_stacking import pile_natively
from symalloc.planner.search.search_instance import SearchInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacking:
    """`order` lists the buffers bottom first; `below[i]` holds those that i lies on directly: the others that
    interfere with i and come before it are below one of them.
    """

    order: tuple[int, ...]
    below: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, order: Sequence[int], buffers: Sequence[Buffer]) -> Stacking:
        """Return the stacking in which of two that are live together the one that comes first in `order` lies
        below.
        """
        return cls.at(order, changes_of([b.live for b in buffers]))

    @classmethod
    def at(cls, order: Sequence[int], changes: Changes) -> Stacking:
        """Return the same, where it is known when each buffer begins and ends to live."""
        return cls(order=tuple(order), below=resting_on(order, changes))


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Height over floor, 1 at best; the lesser is the better."""

    worst: float
    mean: float

    @classmethod
    def of(cls, values: Values) -> Score:
        """Return the score of these ratios, rounded so that noise in the last digits decides nothing."""
        return cls(round(float(values.max()), 9), round(float(values.mean()), 9))


def judged(problem: SearchInstance, order: Sequence[int]) -> tuple[Stacking, Values]:
    """Return the stacking of `order`, and its ratios."""
    if problem.graph is None:
        stacking = Stacking.at(order, problem.changes)
        return stacking, ratios(problem, stacking)
    below, tops = pile_natively(problem.graph, order, problem.kinds, problem.values)
    return Stacking(order=tuple(order), below=below), _over_floors(problem, tops)


def ratios(problem: SearchInstance, stacking: Stacking) -> Values:
    """Return height over floor at each point of the grid."""
    return _over_floors(problem, heights(problem, stacking))


def _over_floors(problem: SearchInstance, tops: Values) -> Values:
    return np.maximum(tops / problem.floors, 1.0)


def heights(problem: SearchInstance, stacking: Stacking) -> Values:
    """Return the height at each point of the grid in bytes.

    Buffers of one size that lie on the same ends end together: layers repeat, so there are few different
    ends.
    """
    ends_of = [-1] * len(problem)
    known: dict[tuple[int, frozenset[int]], int] = {}
    for i in stacking.order:
        under = frozenset([ends_of[j] for j in stacking.below[i]])
        ends_of[i] = known.setdefault((problem.kinds[i], under), len(known))
    ends = np.zeros((len(known), len(problem.grid)))
    for row, (kind, under) in enumerate(known):
        ends[row] = problem.values[kind]
        if under:
            ends[row] += ends[list(under)].max(axis=0)
    top: Values = ends.max(axis=0, initial=0.0)
    return top

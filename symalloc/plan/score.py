"""Judges stackings over the whole grid at once.

A stacking is an order here, bottom first; of two buffers that interfere, the earlier lies below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from symalloc.plan.grid import Values
from symalloc.plan.instance import Instance

__all__ = ["Score", "ratios", "score", "tops"]


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Height over floor, 1 at best; the lesser is the better."""

    worst: float
    mean: float


def ratios(problem: Instance, order: Sequence[int], points: Sequence[int] | None = None) -> Values:
    """Height over floor at each of `points` of the grid (all of them by default)."""
    table = problem.table if points is None else problem.table[:, points]
    floors = problem.floors if points is None else problem.floors[points]
    ratio: Values = tops(order, problem.adjacent, table).max(axis=0, initial=0.0) / floors
    return np.maximum(ratio, 1.0)


def score(values: Values) -> Score:
    """The score of these ratios, rounded so that noise in the last digits decides nothing."""
    return Score(round(float(values.max()), 9), round(float(values.mean()), 9))


def tops(order: Iterable[int], adjacent: Sequence[Sequence[int]], table: Values) -> Values:
    """Where each buffer ends at each point when the buffers of `order` are stacked; 0 for the others.

    Buffers go by levels, all of one level in one step: a level's offsets follow from those below it.
    """
    level = [-1] * len(adjacent)
    layers: list[list[int]] = []
    under: list[list[list[int]]] = []
    for i in order:
        below = [j for j in adjacent[i] if level[j] >= 0]
        depth = 1 + max([level[j] for j in below]) if below else 0
        level[i] = depth
        if depth == len(layers):
            layers.append([])
            under.append([])
        layers[depth].append(i)
        under[depth].append(below)
    ends = np.zeros_like(table)
    if layers:
        ends[layers[0]] = table[layers[0]]
    for members, lists in zip(layers[1:], under[1:], strict=True):
        starts = [0, *accumulate(map(len, lists[:-1]))]
        offsets = np.maximum.reduceat(ends[list(chain.from_iterable(lists))], starts, axis=0)
        ends[members] = offsets + table[members]
    return ends

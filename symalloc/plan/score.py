"""Judges stackings over the whole grid at once.

A stacking is an order here, bottom first; of two buffers that interfere, the earlier lies below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from symalloc.plan.grid import Values
from symalloc.plan.instance import Instance

__all__ = ["Score", "ratios", "score", "tops"]


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Height over floor, 1 at best; the lesser is the better."""

    worst: float
    mean: float


def ratios(problem: Instance, order: Sequence[int]) -> Values:
    """Height over floor at each point of the grid."""
    if not order:
        return np.ones(len(problem.grid))
    ratio: Values = tops(order, problem.adjacent, problem.table).max(axis=0) / problem.floors
    return np.maximum(ratio, 1.0)


def score(values: Values) -> Score:
    """The score of these ratios, rounded so that noise in the last digits decides nothing."""
    return Score(round(float(values.max()), 9), round(float(values.mean()), 9))


def tops(order: Iterable[int], adjacent: Sequence[Sequence[int]], table: Values) -> Values:
    """Where each buffer ends at each point when the buffers of `order` are stacked; 0 for the others.

    Buffers go by levels, all of one level in one step: a level's offsets follow from those below it.
    """
    level = [-1] * len(adjacent)
    layers: list[list[tuple[int, list[int]]]] = []
    for i in order:
        under = [j for j in adjacent[i] if level[j] >= 0]
        level[i] = 1 + max([level[j] for j in under], default=-1)
        if level[i] == len(layers):
            layers.append([])
        layers[level[i]].append((i, under))
    ends = np.zeros_like(table)
    for depth, layer in enumerate(layers):
        members = [i for i, _ in layer]
        ends[members] = table[members]
        if depth:
            flat = [j for _, under in layer for j in under]
            starts = np.cumsum([0, *(len(under) for _, under in layer[:-1])])
            ends[members] += np.maximum.reduceat(ends[flat], starts, axis=0)
    return ends

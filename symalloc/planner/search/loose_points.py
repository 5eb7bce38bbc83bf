"""Points between and beyond those of a grid at which stackings that are at the floor there are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from symalloc.planner.search.grid import Grid, Ranges, Values
from symalloc.planner.search.search_instance import SearchInstance
from symalloc.planner.search.stacking import Stacking, ratios
from symalloc.planner.search.worst_shapes import worst_shapes
from symalloc.size.condition import Condition

MOST_CELLS = 200_000  # buffers and points, multiplied
FEWEST_POINTS = 16
NEGLIGIBLE = 1e-9

Regimes: TypeAlias = tuple[tuple[Condition | None, Stacking], ...]
"""Stackings, each taken where its condition is the first to hold; the last one has none."""


class LoosePoints(NamedTuple):
    """Points at which stackings are above the floor, and the worst ratio to it."""

    points: Sequence[tuple[int, ...]]
    worst: float


def loose_points(problem: SearchInstance, regimes: Regimes, ranges: Ranges) -> LoosePoints:
    """Return the points found at which `regimes` are above the floor, the worst first."""
    if len(problem.sizes) == 1:
        return LoosePoints((), 1.0)  # all points are alike
    names = problem.grid.names
    lows = [max(ranges.get(name, (0, None))[0], 0) for name in names]
    worst = [1.0]

    def excesses(points: Sequence[tuple[int, ...]]) -> tuple[Grid, Values] | None:
        if not points:
            return None
        there = problem.at((tuple(map(max, point, lows)) for point in points) if any(lows) else points)
        found = _ratios(there, regimes)
        worst.append(float(found.max()))
        return there.grid, found - 1

    most = max(MOST_CELLS // max(len(problem), 1), FEWEST_POINTS)
    found = worst_shapes(names, excesses, most, NEGLIGIBLE, dense=True)
    return LoosePoints([tuple(shape[name] for name in names) for shape in found], max(worst))


def _ratios(problem: SearchInstance, regimes: Regimes) -> Values:
    """Return the ratio to the floor of the stacking that is taken at each point."""
    found = np.ones(len(problem.grid))
    rest = np.ones(len(problem.grid), dtype=bool)
    for condition, stacking in regimes:
        here = rest
        if condition is not None:
            ((_, truth),) = problem.grid.truths([condition])
            here = rest & truth
        found = np.where(here, ratios(problem, stacking), found)
        rest = rest & ~here
    return found

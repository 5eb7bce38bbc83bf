"""The largest ratio of an arena to the floor of what lies in it, among the shapes that are looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symalloc.planner.grid import Grid, Values, grid_within, sample_grid
from symalloc.planner.live_bytes import LiveBytes
from symalloc.planner.worst_shapes import skewed_points, worst_shapes
from symalloc.prover.domain import Domain
from symalloc.size.expr import Expr

MOST_STARTS = 2048  # shapes that the search starts from


def worst_ratio(live: LiveBytes, size: Expr, domain: Domain, names: Sequence[str]) -> float:
    """Return how many times the bytes that are `live` together `size` is at most, at least 1.

    Looked at are the samples of `domain`, and shapes that a search goes through: at others it may be more.
    """
    samples = sample_grid(domain, names)
    found = [1.0, *(taken / max(floor, 1) for taken, floor in live.beside(size, samples))]

    def excesses(points: Sequence[tuple[int, ...]]) -> tuple[Grid, Values] | None:
        grid = grid_within(domain, samples.names, points)
        ratios = live.ratios(size, grid) if len(grid) else None
        if ratios is None:
            return None
        found.append(float(ratios.max()))
        return grid, np.maximum(ratios - 1, 0.0)

    worst_shapes(samples.names, excesses, MOST_STARTS, 0.0, besides=skewed_points(len(samples.names)))
    return max(found)

"""The bindings to pack at: one for each order that the sizes can have, likely ones first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symalloc.planner.search.grid import TYPICAL, Ranges
from symalloc.planner.search.search_instance import SearchInstance


def representatives(problem: SearchInstance, ranges: Ranges, most: int) -> list[int]:
    """At most `most` points of the grid, at least one.

    First a typical one within the declared bounds, then those where one symbol is typical and the others are
    small; then for each order of the distinct sizes the point in the middle of those that have it, the common
    orders first; then points spread over the grid.
    """
    grid = problem.grid
    typical = {name: _typical(*ranges.get(name, (0, None))) for name in grid.names}
    likely = [
        typical,
        *(dict.fromkeys(grid.names, 1) | {name: typical[name]} for name in reversed(grid.names)),
    ]
    middles = [group[len(group) // 2] for group in _groups(problem)]
    spread = np.linspace(0, len(grid) - 1, most, dtype=int).tolist()
    return list(dict.fromkeys((*map(grid.nearest, likely), *middles, *spread)))[:most]


def _typical(low: int, high: int | None) -> int:
    return max(min(TYPICAL, TYPICAL if high is None else high), low)


def _groups(problem: SearchInstance) -> Sequence[list[int]]:
    """The points of the grid by the order of the sizes there, most frequent first."""
    groups: dict[bytes, list[int]] = {}
    for point, order in enumerate(np.argsort(problem.values, axis=0, kind="stable").T):
        groups.setdefault(order.tobytes(), []).append(point)
    return sorted(groups.values(), key=lambda group: -len(group))

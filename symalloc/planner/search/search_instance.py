"""A packing problem as the search sees it: buffers by index, neighbours, sizes and floors over a grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from symalloc.planner.interference import Changes, changes_of, interference, pairs_live_together
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.grid import TYPICAL, Grid, Ranges, Values, score_grid
from symalloc.planner.search.native_stacking import native_graph
from symalloc.size.expr import Expr

if TYPE_CHECKING:
    from symalloc.native.native_functions import GraphObject

MOST_PAIRS = 100_000  # of buffers that are live together


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInstance:
    """`buffers` with the numbers that the search works on.

    `changes` are those of their live ranges; `pairs` counts those that are live together; `neighbours` holds
    the indices of the buffers that interfere with each, none where all is `crowded`.  `sizes` holds the
    distinct sizes and `kinds` which of them each buffer has; `values[k, g]` is the k-th size at point g of
    the grid, `floors[g]` the floor there (at least 1 byte).  `graph` holds `neighbours` and
    `changes` for the native library, where that is loaded.
    """

    buffers: Sequence[Buffer]
    neighbours: tuple[tuple[int, ...], ...]
    changes: Changes
    pairs: int
    begins: tuple[int, ...]
    durations: tuple[int, ...]
    sizes: tuple[Expr, ...]
    kinds: tuple[int, ...]
    grid: Grid
    values: Values
    floors: Values
    graph: GraphObject | None = field(repr=False)

    @classmethod
    def of(cls, buffers: Sequence[Buffer], ranges: Ranges) -> SearchInstance:
        """Return the instance of `buffers`, on a grid that `ranges` steers."""
        distinct: dict[Expr, int] = {}
        kinds = tuple(distinct.setdefault(b.size, len(distinct)) for b in buffers)
        sizes = tuple(distinct)
        grid = score_grid(sizes, ranges)
        values = np.nan_to_num(grid.values(sizes))
        pairs = pairs_live_together([b.live for b in buffers])
        neighbours = () if pairs > MOST_PAIRS else interference(buffers)
        changes = changes_of([b.live for b in buffers])
        return cls(
            buffers=buffers,
            neighbours=neighbours,
            changes=changes,
            pairs=pairs,
            begins=tuple(b.live[0][0] if b.live else 0 for b in buffers),
            durations=tuple(sum(end - begin for begin, end in b.live) for b in buffers),
            sizes=sizes,
            kinds=kinds,
            grid=grid,
            values=values,
            floors=_floors(buffers, values, kinds),
            graph=native_graph(neighbours, changes),
        )

    def at(self, points: Iterable[tuple[int, ...]]) -> SearchInstance:
        """Return the same at other points."""
        grid = Grid(names=self.grid.names, points=tuple(dict.fromkeys(points)))
        values = np.nan_to_num(grid.values(self.sizes))
        floors = _floors(self.buffers, values, self.kinds)
        return replace(self, grid=grid, values=values, floors=floors)

    def __len__(self) -> int:
        return len(self.buffers)

    @property
    def crowded(self) -> bool:
        """True where so many pairs are live together that they are not looked at."""
        return self.pairs > MOST_PAIRS

    def relative(self, point: int) -> list[float]:
        """Return the size of each buffer at a point of the grid, in multiples of the floor there."""
        values: list[float] = (self.values[:, point] / self.floors[point]).tolist()
        return [values[kind] for kind in self.kinds]

    def sizes_at(self, point: int) -> list[int]:
        """Return the exact size of each buffer at a point of the grid, in bytes."""
        binding = self.grid.binding(point)
        values = [size.evaluate(binding) for size in self.sizes]
        return [values[kind] for kind in self.kinds]


def _floors(buffers: Sequence[Buffer], values: Values, kinds: Sequence[int]) -> Values:
    """Return the most bytes that are live at one position, at each point; `values` has a row a kind."""
    events = sorted(
        (position, begins, kind)
        for b, kind in zip(buffers, kinds, strict=True)
        for begin, end in b.live
        if begin < end
        for begins, position in ((False, end), (True, begin))
    )
    now, floors = np.zeros(values.shape[1]), np.ones(values.shape[1])
    for place, (_, begins, kind) in enumerate(events):
        now = now + values[kind] if begins else now - values[kind]
        if begins and (place + 1 == len(events) or not events[place + 1][1]):
            floors = np.maximum(floors, now)
    return floors


def representatives(problem: SearchInstance, ranges: Ranges, most: int) -> list[int]:
    """Return at most `most` points of the grid to pack at, at least one.

    First a typical one within the declared bounds, then those where one symbol is typical and the others are
    small; then for each order of the distinct sizes the point in the middle of those that have it, the common
    orders first; then points spread over the grid.
    """
    grid = problem.grid
    typical = typical_binding(grid.names, ranges)
    likely = [
        typical,
        *(dict.fromkeys(grid.names, 1) | {name: typical[name]} for name in reversed(grid.names)),
    ]
    middles = [group[len(group) // 2] for group in _groups(problem)]
    spread = np.linspace(0, len(grid) - 1, most, dtype=int).tolist()
    return list(dict.fromkeys((*grid.nearest(likely[:most]), *middles, *spread)))[:most]


def typical_binding(names: Iterable[str], ranges: Ranges) -> dict[str, int]:
    """Return a typical extent for each symbol, within its declared bounds."""
    return {name: _typical(*ranges.get(name, (0, None))) for name in names}


def _typical(low: int, high: int | None) -> int:
    return max(min(TYPICAL, TYPICAL if high is None else high), low)


def _groups(problem: SearchInstance) -> Sequence[list[int]]:
    """Group the points of the grid by the order of the sizes there, the largest group first."""
    groups: dict[bytes, list[int]] = {}
    for point, order in enumerate(np.argsort(problem.values, axis=0, kind="stable").T):
        groups.setdefault(order.tobytes(), []).append(point)
    return sorted(groups.values(), key=lambda group: -len(group))

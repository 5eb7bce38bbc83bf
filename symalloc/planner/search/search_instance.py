"""A packing problem as the search sees it: buffers by index, who meets whom, sizes and floors over a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symalloc.planner.memory_plan import Buffer, LiveRange
from symalloc.planner.search.grid import Grid, Ranges, Values, score_grid
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInstance:
    """Buffers are numbered by their place in `ids`.

    `sizes` holds the distinct sizes and `kinds` which of them each buffer has; `values[k, g]` is the k-th
    size at point g of the grid, `floors[g]` the floor there (at least 1 byte).
    """

    ids: tuple[int, ...]
    adjacent: tuple[tuple[int, ...], ...]
    live: tuple[LiveRange, ...]
    begins: tuple[int, ...]
    spans: tuple[int, ...]
    sizes: tuple[Expr, ...]
    kinds: tuple[int, ...]
    grid: Grid
    values: Values
    floors: Values

    @classmethod
    def of(
        cls,
        buffers: Sequence[Buffer],
        neighbours: Mapping[int, frozenset[int]],
        ranges: Ranges,
        sums: Sequence[Expr],
    ) -> SearchInstance:
        """The instance of `buffers`; `sums` are the live sums of the floor."""
        index = {b.id: i for i, b in enumerate(buffers)}
        distinct: dict[Expr, int] = {}
        kinds = tuple(distinct.setdefault(b.size, len(distinct)) for b in buffers)
        sizes = tuple(distinct)
        grid = score_grid(sizes, ranges)
        floors = grid.values(sums).max(axis=0, initial=1.0)
        return cls(
            ids=tuple(b.id for b in buffers),
            adjacent=tuple(tuple(index[j] for j in neighbours[b.id]) for b in buffers),
            live=tuple(b.live for b in buffers),
            begins=tuple(b.live[0][0] if b.live else 0 for b in buffers),
            spans=tuple(sum(end - begin for begin, end in b.live) for b in buffers),
            sizes=sizes,
            kinds=kinds,
            grid=grid,
            values=grid.values(sizes),
            floors=floors,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def relative(self, point: int) -> list[float]:
        """The size of each buffer at a point of the grid, in multiples of the floor there."""
        values: list[float] = (self.values[:, point] / self.floors[point]).tolist()
        return [values[kind] for kind in self.kinds]

    def sizes_at(self, point: int) -> list[int]:
        """The exact size of each buffer at a point of the grid, in bytes."""
        binding = self.grid.binding(point)
        values = [size.evaluate(binding) for size in self.sizes]
        return [values[kind] for kind in self.kinds]

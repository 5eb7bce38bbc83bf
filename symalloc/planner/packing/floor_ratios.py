"""The bytes of an arena beside the floor, over bindings that go far past declared bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from symalloc.planner.interference import floor_bytes
from symalloc.planner.search.grid import Grid, Ranges, score_grid
from symalloc.size.expr import Expr

DENSE = 4096  # all values up to this one, where there is one symbol
CLOSE = 64  # for two symbols, all values up to this one, then a geometric sequence
STEPS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorRatio:
    """Bytes of the arena and of the floor at one binding; without a live byte the ratio is 1."""

    binding: Mapping[str, int]
    bytes: int
    floor: int

    @property
    def ratio(self) -> float:
        """Arena over floor."""
        return self.bytes / self.floor if self.floor else 1.0


def ratios_of(arena: Expr, sums: Sequence[Expr], ranges: Ranges) -> tuple[FloorRatio, ...]:
    """The ratios over the grid that searches use, and at the worst binding of a far denser one.

    `sums` are the live sums of the floor.
    """
    grid = score_grid((arena, *sums), ranges)
    bindings = [grid.binding(point) for point in range(len(grid))]
    dense = Grid(names=grid.names, points=tuple(_dense(grid.names, ranges)))
    if len(dense):
        floors = np.maximum(dense.values(sums).max(axis=0, initial=0.0), 1.0)
        worst = dense.binding(int((dense.values([arena])[0] / floors).argmax()))
        if worst not in bindings:
            bindings.append(worst)
    return tuple(
        FloorRatio(binding=b, bytes=arena.evaluate(b), floor=floor_bytes(sums, b))
        for b in sorted(bindings, key=lambda b: tuple(b.values()))
    )


def _dense(names: Sequence[str], ranges: Ranges) -> Iterator[tuple[int, ...]]:
    """Points of a dense grid over one or two symbols; none for more."""
    lows = [max(ranges.get(name, (1, None))[0], 1) for name in names]
    if len(names) == 1:
        yield from ((extent,) for extent in range(lows[0], lows[0] + DENSE))
    if len(names) == 2:
        yield from product(*(_steps(low) for low in lows))


def _steps(low: int) -> list[int]:
    spread = np.geomspace(low + CLOSE, low + DENSE, STEPS).astype(int).tolist()
    return sorted({*range(low, low + CLOSE), *spread})

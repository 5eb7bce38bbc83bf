"""The floor at given bindings: the most bytes that are live together, and how much more an arena takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate

import numpy as np

from symalloc.planner.grid import EXACT, Grid, Values, grid_within, sample_grid
from symalloc.planner.interference import events_of
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.shapes import ExtentBounds, worst_shapes
from symalloc.prover.domain import Domain
from symalloc.size.expr import Expr

MOST_STARTS = 2048  # shapes that the search for the worst ratio starts from
MOST_KINDS = 64  # distinct sizes of which it is counted how many are live together


class LiveBytes:
    """The bytes of some buffers that are live together, at given bindings."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        distinct: dict[Expr, int] = {}
        known: dict[int, int] = {}  # most of what is equal is one object
        for buffer in buffers:
            if id(buffer.size) not in known:
                known[id(buffer.size)] = distinct.setdefault(buffer.size, len(distinct))
        self.sizes = tuple(distinct)
        self._events = events_of([known[id(b.size)] for b in buffers], [b.live for b in buffers])

    def most(self, binding: Mapping[str, int]) -> int:
        """Return the most bytes that are live at one position under `binding`."""
        values = [size.evaluate(binding) for size in self.sizes]
        changes = (values[kind] if begins else -values[kind] for _, begins, kind in self._events)
        return max(accumulate(changes), default=0)

    def beside(self, size: Expr, grid: Grid) -> Iterable[tuple[float, float]]:
        """Return the bytes of `size` and the most that are live together, at each point of `grid` but for
        those at which a divisor is zero.
        """
        table = self._table(size, grid)
        if table is not None and (np.abs(table) < EXACT).all():
            return zip(*table.tolist(), strict=True)
        return self._exactly(size, map(grid.binding, range(len(grid))))

    def ratios(self, size: Expr, grid: Grid) -> Values | None:
        """Return the bytes of `size` in multiples of those that are live together at each point, 0 where they
        are not defined; None for many sizes.
        """
        table = self._table(size, grid)
        if table is None:
            return None
        with np.errstate(invalid="ignore"):
            found = table[0] / np.maximum(table[1], 1.0)
        return np.where(np.isfinite(found), found, 0.0)

    def _table(self, size: Expr, grid: Grid) -> Values | None:
        """Return the bytes of `size` and those that are live together, as rows; None for many sizes."""
        if self._combinations is None:
            return None
        values = grid.values([size, *self.sizes])
        with np.errstate(invalid="ignore"):
            return np.array([values[0], (self._combinations @ values[1:]).max(axis=0, initial=0.0)])

    def _exactly(self, size: Expr, bindings: Iterable[Mapping[str, int]]) -> Iterator[tuple[int, int]]:
        for binding in bindings:
            with suppress(ZeroDivisionError):
                yield size.evaluate(binding), self.most(binding)

    @cached_property
    def _combinations(self) -> Values | None:
        """The numbers of each size that are live together, a row for each of them; None for many sizes."""
        if len(self.sizes) > MOST_KINDS:
            return None
        now, found = [0] * len(self.sizes), set[tuple[int, ...]]()
        rising = False
        for _, begins, kind in self._events:
            if rising and not begins:
                found.add(tuple(now))
            now[kind] += 1 if begins else -1
            rising = begins
        return np.array(list(found), dtype=np.float64).reshape(len(found), len(self.sizes))


def worst_ratio(live: LiveBytes, size: Expr, domain: Domain, names: Sequence[str]) -> float:
    """Return how many times the bytes that are `live` together `size` is at most, at least 1.

    Looked at are the samples of `domain`, and shapes that a search goes through: at others it may be more.
    """
    samples = sample_grid(domain, names)
    found = [1.0, *(taken / max(floor, 1) for taken, floor in live.beside(size, samples))]

    def excesses(wanted: Grid) -> tuple[Grid, Values] | None:
        grid = grid_within(domain, samples.names, wanted.points)
        ratios = live.ratios(size, grid) if len(grid) else None
        if ratios is None:
            return None
        found.append(float(ratios.max()))
        return grid, np.maximum(ratios - 1, 0.0)

    worst_shapes(samples.names, ExtentBounds(), excesses, MOST_STARTS)
    return max(found)

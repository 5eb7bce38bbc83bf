"""The shapes at which whole calls are compared: samples, and such as are found where a call takes too much.

Where two moments of a call take the same depends on the ratios of symbols, so samples chosen in advance miss
it. The search starts from a lattice of extents (random ones for three or more symbols) and goes on around the
worst points, in ever smaller steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.planner.grid import TYPICAL, Grid, Truths, Values
from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.size.expr import Expr

Numbers: TypeAlias = NDArray[np.int64]
Points: TypeAlias = Sequence[tuple[int, ...]]

LINE = (0, 1, 2, 3, 5, 8, 13, 17, 33, 64, 100, 200, 333, 512, 1024, 4096, 1 << 18)
PLANE = (0, 1, 5, 33, 200, 1024, 1 << 18)
DECADES = (4.0, 9.0, 12.0)  # binary logarithms of the largest extents that are drawn
DRAWN = 36  # samples of three or more symbols; the search starts from eight times as many
FARTHEST = 20  # the binary logarithm of the largest extent
STEPS = (1.5, 1.25, 1.12, 1.06)
KEPT = 4  # points that the search goes on from, and that are returned


@dataclass(frozen=True, slots=True)
class SizeTable:
    """Sizes at the points of a grid: `values` has a row for each of `rows`, in bytes, never negative."""

    grid: Grid
    rows: Mapping[Expr, int]
    values: Values

    @classmethod
    def at(cls, grid: Grid, sizes: Iterable[Expr]) -> SizeTable:
        """Return the values of `sizes`; one that is not defined at a point is nan there."""
        distinct = tuple(dict.fromkeys(sizes))
        rows = {size: row for row, size in enumerate(distinct)}
        return cls(grid, rows, np.maximum(grid.values(distinct), 0.0))

    def defined(self) -> SizeTable | None:
        """The same at the points at which all sizes are defined; None where there is none."""
        finite: Truths = np.all(np.isfinite(self.values), axis=0)
        if finite.all():
            return self if len(self.grid) else None
        points = tuple(point for point, one in zip(self.grid.points, finite.tolist(), strict=True) if one)
        grid = Grid(names=self.grid.names, points=points)
        return SizeTable(grid, self.rows, self.values[:, finite]) if points else None

    def bytes_of(self, sizes: Iterable[Expr]) -> Values:
        """Return one row for each of `sizes`, which are among those of the table."""
        found: Values = self.values[np.array([self.rows[size] for size in sizes], dtype=np.int64)]
        return found


@dataclass(frozen=True, slots=True)
class ExtentBounds:
    """Bounds that a function declares for its symbols: sample shapes keep within them, and are not negative
    where there is none.
    """

    lower: Mapping[str, int] = field(default_factory=dict)
    upper: Mapping[str, int] = field(default_factory=dict)

    def grid(self, names: tuple[str, ...], points: Iterable[Sequence[int]]) -> Grid:
        """Return the grid of `points`, each extent moved within the bounds of its symbol."""
        if not names:
            return Grid(names=(), points=tuple(dict.fromkeys(map(tuple, points))))
        within = map(self._within, names, zip(*points, strict=True))
        return Grid(names=names, points=tuple(dict.fromkeys(zip(*within, strict=True))))

    def _within(self, name: str, extents: Sequence[int]) -> Sequence[int]:
        low = self.lower.get(name, 0)
        high = self.upper.get(name, INT64_MAX)
        return [min(max(extent, low), high) for extent in extents]


def sample_table(
    sizes: Sequence[Expr], bounds: ExtentBounds, more: Sequence[Mapping[str, int]] = ()
) -> SizeTable:
    """Return `sizes` at sample bindings of their symbols, at which all are defined, and at `more` bindings of
    some symbols or all.
    """
    names = symbols_of(sizes)
    others = [
        tuple(binding.get(name, TYPICAL) for name in names)
        for binding in ((bounds.upper, *more) if bounds.upper else more)
    ]
    grid = bounds.grid(names, (*_samples(len(names)), *others))
    first = Grid(names=names, points=grid.points[:1])
    return SizeTable.at(grid, sizes).defined() or SizeTable.at(first, sizes)


def sample_grid(domain: Domain, names: Sequence[str]) -> Grid:
    """Return a few bindings of `names`, and of what else `domain` speaks of, inside it."""
    spoken = frozenset().union(*(a.symbols for a in domain.assumptions))
    every = tuple(dict.fromkeys((*names, *sorted(spoken))))
    lower, upper = ({name: bound(name) for name in every} for bound in (domain.lower_of, domain.upper_of))
    if any(lower[name] > upper[name] for name in every):
        return Grid(names=every, points=())
    grid = ExtentBounds(lower, upper).grid(every, _samples(len(every)))
    inside = (i for i in range(len(grid)) if not domain.assumptions or _inside(domain, grid.binding(i)))
    return Grid(names=every, points=tuple(grid.points[i] for i in inside))


def _inside(domain: Domain, binding: Mapping[str, int]) -> bool:
    try:
        return domain.contains(binding)
    except (KeyError, ZeroDivisionError):
        return False


def symbols_of(sizes: Iterable[Expr]) -> tuple[str, ...]:
    """Return the symbols of sizes, in order."""
    return tuple(sorted(frozenset().union(*(size.symbols for size in sizes))))


@lru_cache(maxsize=256)
def _samples(dimensions: int) -> Points:
    """The samples of so many symbols: alike, and drawn."""
    if dimensions < 3:
        return tuple(product(LINE if dimensions == 1 else PLANE, repeat=dimensions))
    return (*((extent,) * dimensions for extent in PLANE), *_drawn(dimensions, DRAWN))


def _drawn(dimensions: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield random points, always the same, small ones among them."""
    random = Random(dimensions)
    for index in range(count):
        most = DECADES[index % len(DECADES)]
        yield tuple(round(2 ** random.uniform(0.0, most)) for _ in range(dimensions))


# -- shapes that are found -----------------------------------------------------------------------------------


def worst_shapes(
    names: tuple[str, ...],
    bounds: ExtentBounds,
    excesses: Callable[[Grid], tuple[Grid, Values] | None],
    most: int,
) -> list[Mapping[str, int]]:
    """Return bindings of `names` within `bounds` at which the excess is above 1, the worst first; at most
    KEPT.

    `excesses` gives it for those points of a grid at which it is defined.  The search starts from `most` of
    its points.
    """
    points = _starts(len(names))
    starts = points[:: max(-(-len(points) // most), 1)]
    worst = _worst(excesses, bounds.grid(names, starts), {})
    for step in STEPS if worst else ():
        around = {near for point in worst for near in _around(point, step)}
        worst = _worst(excesses, bounds.grid(names, sorted(around)), worst)
    return [dict(zip(names, point, strict=True)) for point, excess in worst.items() if excess > 1]


def _worst(
    excesses: Callable[[Grid], tuple[Grid, Values] | None], grid: Grid, known: Mapping[tuple[int, ...], float]
) -> dict[tuple[int, ...], float]:
    """The worst points with their excess, of those of `grid` and of those `known`, none without."""
    found = dict(known)
    judged = excesses(grid) if len(grid) else None
    if judged is not None:
        defined, values = judged
        found |= {defined.points[i]: float(values[i]) for i in np.flatnonzero(values > 0).tolist()}
    ranked = sorted(found, key=lambda point: (-found[point], point))
    return {point: found[point] for point in ranked[:KEPT]}


@lru_cache(maxsize=64)
def _starts(dimensions: int) -> Points:
    """The points that a search of so many symbols starts from."""
    if dimensions == 0:
        return ()
    if dimensions == 1:
        return tuple((extent,) for extent in sorted({*range(12), *_powers(3), *LINE}))
    if dimensions == 2:
        return tuple(dict.fromkeys((*product(_powers(1)[:14], repeat=2), *product(range(1, 7), repeat=2))))
    return tuple(_drawn(dimensions, 8 * DRAWN))


def _powers(each: int) -> list[int]:
    """The extents up to the largest, so many of them from one power of two to the next."""
    return [round(2 ** (k / each)) for k in range(FARTHEST * each + 1)]


def _around(point: tuple[int, ...], step: float) -> Iterator[tuple[int, ...]]:
    """Yield the points that lie a step away along each axis."""
    for axis in range(len(point)):
        for factor in (1 / step, step):
            yield (*point[:axis], round(point[axis] * factor), *point[axis + 1 :])

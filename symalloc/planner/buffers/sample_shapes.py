"""The shapes at which whole calls are compared: small, large and skewed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, islice, product

import numpy as np

from symalloc.planner.buffers.held_sums import Numbers
from symalloc.planner.grid import Grid, Truths, Values, mirrored
from symalloc.prover.domain import INT64_MAX, INT64_MIN
from symalloc.size.expr import Expr


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

    def parts(self, most: int) -> Iterator[SizeTable]:
        """Yield the same for `most` points after the other."""
        if len(self.grid) <= most:
            yield self
            return
        for first in range(0, len(self.grid), most):
            grid = Grid(names=self.grid.names, points=self.grid.points[first : first + most])
            yield SizeTable(grid, self.rows, self.values[:, first : first + most])

    def also_at(self, points: Iterable[tuple[int, ...]]) -> SizeTable:
        """Return the same with those of `points` behind its own at which all sizes are defined."""
        there = SizeTable.at(Grid(names=self.grid.names, points=tuple(points)), self.rows).defined()
        if there is None:
            return self
        grid = Grid(names=self.grid.names, points=(*self.grid.points, *there.grid.points))
        return SizeTable(grid, self.rows, np.concatenate((self.values, there.values), axis=1))

    def rows_of(self, sizes: Iterable[Expr]) -> Numbers:
        """Return the number of the row of each of `sizes`, which are among those of the table."""
        return np.array([self.rows[size] for size in sizes], dtype=np.int64)

    def bytes_of(self, sizes: Iterable[Expr]) -> Values:
        """Return one row for each of `sizes`."""
        found: Values = self.values[self.rows_of(sizes)]
        return found


@dataclass(frozen=True, slots=True)
class ExtentBounds:
    """Bounds that a function declares for its symbols: sample shapes keep within them.

    The symbols `signed` may be negative below no bound; the others are not.
    """

    lower: Mapping[str, int] = field(default_factory=dict)
    upper: Mapping[str, int] = field(default_factory=dict)
    signed: frozenset[str] = frozenset()

    def grid(self, names: tuple[str, ...], points: Iterable[Sequence[int]]) -> Grid:
        """Return the grid of `points`, each extent moved within the bounds of its symbol."""
        if not names:
            return Grid(names=(), points=tuple(dict.fromkeys(map(tuple, points))))
        within = map(self._within, names, zip(*points, strict=True))
        return Grid(names=names, points=tuple(dict.fromkeys(zip(*within, strict=True))))

    def _within(self, name: str, extents: Sequence[int]) -> Sequence[int]:
        """Return extents of a symbol, each moved within its bounds."""
        low = self.lower.get(name, INT64_MIN if name in self.signed else 0)
        high = self.upper.get(name, INT64_MAX)
        inside = low <= min(extents) and max(extents) <= high
        return extents if inside else [min(max(extent, low), high) for extent in extents]


def sample_table(
    sizes: Sequence[Expr],
    bounds: ExtentBounds,
    more: Sequence[Mapping[str, int]] = (),
    *,
    dense: bool = False,
) -> SizeTable:
    """Return `sizes` at bindings of their symbols, at which all are defined: alike, skewed, odd, small, and
    all at their upper bounds.  `more` are bindings besides, of some symbols or all; `dense`: there are more
    of two or three symbols.
    """
    names = symbols_of(sizes)
    lows = tuple(bounds.lower.get(name, 0) for name in names)
    points = tuple(mirrored(names, _samples(lows, dense), bounds.signed))
    more = (bounds.upper, *more) if bounds.upper else more
    others = (tuple(binding.get(name, USUAL) for name in names) for binding in more)
    plain = not more and not bounds.signed
    grid = Grid(names=names, points=points) if plain else bounds.grid(names, (*points, *others))
    return SizeTable.at(grid, sizes).defined() or SizeTable.at(
        Grid(names=names, points=grid.points[:1]), sizes
    )


def symbols_of(sizes: Iterable[Expr]) -> tuple[str, ...]:
    """Return the symbols of sizes, in order."""
    return tuple(sorted(frozenset().union(*(size.symbols for size in sizes))))


@lru_cache(maxsize=256)
def _samples(lows: tuple[int, ...], dense: bool) -> tuple[tuple[int, ...], ...]:
    """The samples of as many symbols as there are bounds, each at least that."""
    return tuple(dict.fromkeys(tuple(map(max, point, lows)) for point in _points(len(lows), dense)))


LINE = (0, 1, 2, 3, 5, 8, 13, 17, 33, 64, 100, 200, 333, 512, 1024, 2048, 4096)
PLANE = (0, 1, 5, 33, 200, 1024)
DENSE_PLANE = (0, 1, 2, 5, 13, 33, 64, 100, 200, 450, 1024, 4096)
SPACE = (0, 3, 40, 700)
DENSE_SPACE = (0, 1, 8, 64, 512)
FEW_SYMBOLS = 3
USUAL = 200
ALIKE = (1, 5, 33, 200, 1024)
LEVELS = ((0, 300), (3, 64), (3, 1024), (200, 0), (200, 2), (64, 1))  # all symbols but one, and that one
PAIRS = (3, 700)  # all symbols but two, and those
MOST_PAIRS = 24
MIXED = 12


def _points(dimensions: int, dense: bool) -> Iterable[tuple[int, ...]]:
    if dimensions == 1:
        return ((extent,) for extent in LINE)
    if dimensions == 2:
        return product(DENSE_PLANE if dense else PLANE, repeat=2)
    alike = [(extent,) * dimensions for extent in ALIKE]
    mixed = [
        tuple(ALIKE[(3 * k + k // 6 + j * (k + 1)) % len(ALIKE)] for j in range(dimensions))
        for k in range(MIXED)
    ]
    if dimensions <= FEW_SYMBOLS:
        return (*alike, *mixed, *product(DENSE_SPACE if dense else SPACE, repeat=dimensions))
    lone = [_except(dimensions, (axis,), rest, one) for rest, one in LEVELS for axis in range(dimensions)]
    pairs = islice(combinations(range(dimensions), 2), MOST_PAIRS)
    return (*alike, *lone, *mixed, *(_except(dimensions, pair, *PAIRS) for pair in pairs))


def _except(dimensions: int, axes: Sequence[int], rest: int, one: int) -> tuple[int, ...]:
    return tuple(one if axis in axes else rest for axis in range(dimensions))

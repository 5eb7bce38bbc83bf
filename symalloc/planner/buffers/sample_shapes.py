"""The shapes at which whole calls are compared: small, large and skewed ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, islice, product

import numpy as np

from symalloc.planner.search.grid import Grid, Values
from symalloc.size.expr import Expr


def sample_grid(
    sizes: Iterable[Expr], lower: Mapping[str, int], more: Sequence[Mapping[str, int]] = ()
) -> Grid:
    """Return bindings of the symbols of `sizes`, at which all are defined: alike, skewed, odd, small.

    `lower` holds declared lower bounds; `more` are bindings besides, of some symbols or all.
    """
    distinct = tuple(dict.fromkeys(sizes))
    names = tuple(sorted(frozenset().union(*(size.symbols for size in distinct))))
    others = (tuple(binding.get(name, USUAL) for name in names) for binding in more)
    grid = at_least(names, (*_points(len(names)), *others), lower)
    return defined(grid, distinct) or Grid(names=names, points=grid.points[:1])


def defined(grid: Grid, sizes: Sequence[Expr]) -> Grid | None:
    """Return the points of `grid` at which all `sizes` are defined; None where there is none."""
    undefined = set(np.argwhere(~np.isfinite(grid.values(sizes)))[:, 1].tolist())
    kept = tuple(point for number, point in enumerate(grid.points) if number not in undefined)
    return Grid(names=grid.names, points=kept) if kept else None


def at_least(names: tuple[str, ...], points: Iterable[Sequence[int]], lower: Mapping[str, int]) -> Grid:
    """Return the grid of `points`, each extent raised to the lower bound of its symbol."""
    found = dict.fromkeys(
        tuple(max(extent, lower.get(name, 0)) for name, extent in zip(names, point, strict=True))
        for point in points
    )
    return Grid(names=names, points=tuple(found))


LINE = (0, 1, 2, 3, 5, 8, 13, 17, 33, 64, 100, 200, 333, 512, 1024, 2048, 4096)
PLANE = (0, 1, 5, 33, 200, 1024)
SPACE = (0, 3, 40, 700)
FEW_SYMBOLS = 3
USUAL = 200
ALIKE = (1, 5, 33, 200, 1024)
LEVELS = ((0, 300), (3, 64), (3, 1024), (200, 0), (200, 2), (64, 1))  # all symbols but one, and that one
PAIRS = (3, 700)  # all symbols but two, and those
MOST_PAIRS = 24
MIXED = 12


def _points(dimensions: int) -> Iterable[tuple[int, ...]]:
    if dimensions == 1:
        return ((extent,) for extent in LINE)
    if dimensions == 2:
        return product(PLANE, PLANE)
    alike = [(extent,) * dimensions for extent in ALIKE]
    mixed = [
        tuple(ALIKE[(3 * k + k // 6 + j * (k + 1)) % len(ALIKE)] for j in range(dimensions))
        for k in range(MIXED)
    ]
    if dimensions <= FEW_SYMBOLS:
        return (*alike, *mixed, *product(SPACE, repeat=dimensions))
    lone = [_except(dimensions, (axis,), rest, one) for rest, one in LEVELS for axis in range(dimensions)]
    pairs = islice(combinations(range(dimensions), 2), MOST_PAIRS)
    return (*alike, *lone, *mixed, *(_except(dimensions, pair, *PAIRS) for pair in pairs))


def _except(dimensions: int, axes: Sequence[int], rest: int, one: int) -> tuple[int, ...]:
    return tuple(one if axis in axes else rest for axis in range(dimensions))


def bytes_at(sizes: Sequence[Expr], grid: Grid) -> Values:
    """Return one row for each size: its bytes at each point of the grid, never negative."""
    kinds: dict[Expr, int] = {}
    rows = np.array([kinds.setdefault(size, len(kinds)) for size in sizes], dtype=np.int64)
    values: Values = np.maximum(grid.values(tuple(kinds)), 0.0)[rows]
    return values

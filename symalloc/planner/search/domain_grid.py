"""Bindings inside a domain at which what is to hold in all of it is tried first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from symalloc.planner.search.grid import Grid
from symalloc.prover.domain import INT64_MAX, Domain

EXTENTS = (0, 1, 2, 3, 7, 16, 33, 100, 192, 1000, 4096)
LARGE, MIDDLE = 4096, 48


def sample_grid(domain: Domain, names: Sequence[str]) -> Grid:
    """A few bindings of `names`, and of what else `domain` speaks of, inside it: all symbols alike, and each
    of `names` by itself none, or large.
    """
    spoken = frozenset().union(*(a.symbols for a in domain.assumptions))
    every = tuple(dict.fromkeys((*names, *sorted(spoken))))
    return _assumed(domain, Grid(names=every, points=_within(_bounds(domain, every), len(names))))


def grid_within(domain: Domain, names: tuple[str, ...], points: Iterable[tuple[int, ...]]) -> Grid:
    """Return the grid of `points`, each extent moved within its bounds; none outside of `domain`."""
    bounds = _bounds(domain, names)
    if any(low > high for low, high in bounds):
        return Grid(names=names, points=())
    moved = (tuple(min(max(e, low), high) for e, (low, high) in zip(p, bounds, strict=True)) for p in points)
    return _assumed(domain, Grid(names=names, points=tuple(dict.fromkeys(moved))))


def _bounds(domain: Domain, names: Iterable[str]) -> tuple[tuple[int, int], ...]:
    return tuple([(domain.lower_of(name), min(domain.upper_of(name), INT64_MAX)) for name in names])


def _assumed(domain: Domain, grid: Grid) -> Grid:
    """Return the points of `grid` at which what `domain` assumes holds."""
    if not domain.assumptions:
        return grid
    inside = (i for i in range(len(grid)) if _inside(domain, grid.binding(i)))
    return Grid(names=grid.names, points=tuple(grid.points[i] for i in inside))


@lru_cache(maxsize=256)
def _within(bounds: tuple[tuple[int, int], ...], own: int) -> tuple[tuple[int, ...], ...]:
    """The points that `sample_grid` starts from, each extent moved within its bounds."""
    count = len(bounds)
    wanted = [(extent,) * count for extent in EXTENTS]
    for axis in range(own if own > 1 else 0):
        for extent, others in ((0, (1, LARGE)), (LARGE, (1, MIDDLE))):
            wanted += [(*(rest,) * axis, extent, *(rest,) * (count - axis - 1)) for rest in others]
    if any(low > high for low, high in bounds):
        return ()
    lows, highs = zip(*bounds, strict=True) if bounds else ((), ())
    return tuple([tuple(map(min, map(max, point, lows), highs)) for point in wanted])


def _inside(domain: Domain, binding: Mapping[str, int]) -> bool:
    try:
        return domain.contains(binding)
    except (KeyError, ZeroDivisionError):
        return False

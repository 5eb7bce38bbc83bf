"""Bindings at which a call takes more than its limit, looked for between and beyond the sample shapes.

Where two moments of a call take the same depends on the ratios of symbols, so samples chosen in advance miss
it.  The search starts from a lattice of extents (random ones for many symbols), and from such at which sizes
of different symbols are about alike, and goes on around the worst points, in ever smaller steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, cycle, islice, product, repeat
from random import Random
from typing import NamedTuple, TypeAlias

import numpy as np

from symalloc.planner.grid import Grid, Values, mirrored

Excesses: TypeAlias = Callable[[Sequence[tuple[int, ...]]], tuple[Grid, Values] | None]
"""The excess at given points, those of them that are defined; None where none is."""


class Growth(NamedTuple):
    """The growth of the largest size with one symbol: its `degree`, and the binary logarithm of the bytes
    that it is multiplied by.
    """

    factor: float
    degree: int


FINE = 2 ** (1 / 3)  # between extents next to each other, of one symbol
FARTHEST = 2.0**20
SMALL, DENSE_SMALL = range(1, 12), range(1, 257)  # extents of one symbol that are all among the starts
SMALLEST = range(1, 7)  # those of two
ONE = tuple(2**k for k in range(14))  # the extents of two symbols, between those of each other
OTHER = (1, *(round(2 ** (k + 0.5)) for k in range(1, 14)))
DENSE = (*range(1, 8), *(round(2 ** (k / 2.5)) for k in range(8, 33)))
RANDOM, DENSE_RANDOM = 256, 1024  # points of three or more symbols
DECADES = (3.0, 12.0)  # binary logarithms of the extents of these
NEAR = (6.0, 9.0)
FEW = (0.0, 4.0)
ANY = (0.0, 9.0)
ALIKE, APART, IDLE = 20.0, 6.0, 6.0  # logarithms of bytes: two sizes, how far apart at most, and all others
LINES, ON_LINES, ALIKE_AT_RANDOM = 6, 144, 64  # pairs of symbols, points of these, and of three or more
ANY_BYTES = (12.0, 24.0)
FARTHEST_ALIKE = 30.0
STEPS = (1.5, 1.5, 1.25, 1.25, 1.12, 1.06)
SKEWED, SMALLER, LARGER = 1024, 6.0, 20.0  # points, and the largest binary logarithms of their extents
SMALL_POINTS = 256  # points with extents that are small in all
KEPT = 4  # points that the search goes on from, and that are returned
MOST_AXES = 8


def worst_shapes(
    names: Sequence[str],
    excesses: Excesses,
    most: int,
    enough: float,
    signed: Collection[str] = (),
    *,
    growths: Sequence[Growth] = (),
    dense: bool = False,
    at_once: int = 0,
    besides: Sequence[tuple[int, ...]] = (),
) -> list[Mapping[str, int]]:
    """Return bindings of `names` at which the excess is above `enough`, the worst first; at most KEPT.

    The search starts from at most `most` points, and from the same with the symbols `signed` negative;
    there are more of them where they are to lie `dense`, and where the `growths` of sizes are known, and
    those `besides`.  With `at_once` it ends there where some of these are above `enough`, and so many are
    returned.
    """
    points = (*_starts(len(names), dense), *dict.fromkeys(_alike(growths)), *besides)
    stride = max(-(-len(points) // most), 1)
    worst = _worst(excesses, tuple(mirrored(names, points[::stride], signed)), {}, max(at_once, KEPT))
    steps = () if at_once and any(excess > enough for excess in worst.values()) else STEPS
    for step in steps:
        if not worst:
            break
        around = dict.fromkeys(near for point in worst for near in _around(point, step))
        worst = _worst(excesses, list(around), worst)
    return [dict(zip(names, point, strict=True)) for point, excess in worst.items() if excess > enough]


def _worst(
    excesses: Excesses,
    points: Sequence[tuple[int, ...]],
    known: Mapping[tuple[int, ...], float],
    kept: int = KEPT,
) -> dict[tuple[int, ...], float]:
    """The worst points with their excess, of `points` and of those `known`, none without."""
    found = dict(known)
    judged = excesses(points)
    if judged is not None:
        grid, values = judged
        found |= {grid.points[i]: float(values[i]) for i in np.flatnonzero(values > 0).tolist()}
    ranked = sorted(found, key=lambda point: (-found[point], point))
    return {point: found[point] for point in ranked[:kept]}


@lru_cache(maxsize=256)
def _starts(dimensions: int, dense: bool) -> tuple[tuple[int, ...], ...]:
    if dimensions == 0:
        return ()
    if dimensions == 1:
        return tuple(
            (extent,) for extent in sorted({*(DENSE_SMALL if dense else SMALL), *_line(1, FARTHEST, FINE)})
        )
    if dimensions == 2:
        lattice = product(DENSE, repeat=2) if dense else product(ONE, OTHER)
        return tuple(dict.fromkeys((*lattice, *product(SMALLEST, repeat=2))))
    random = Random(dimensions)
    between = islice(cycle((NEAR, DECADES, FEW, ANY)), DENSE_RANDOM if dense else RANDOM)
    return tuple(tuple(round(2 ** random.uniform(*ends)) for _ in range(dimensions)) for ends in between)


def _alike(growths: Sequence[Growth]) -> Sequence[tuple[int, ...]]:
    """Return extents at which sizes are about alike, whatever their degrees and factors: pair by pair, the
    others small, and all at random.
    """
    if len(growths) < 2:
        return ()
    factors, degrees = np.array(growths).T
    growing = degrees > 0
    exponents = (_bytes_alike(len(growths)) - factors) / np.where(growing, degrees, 1)
    extents = np.rint(np.exp2(np.clip(exponents, 0.0, FARTHEST_ALIKE)))
    return [tuple(point) for point in np.where(growing, extents, 1.0).astype(np.int64).tolist()]


@lru_cache(maxsize=256)
def _bytes_alike(count: int) -> Values:
    """The bytes, as binary logarithms, that each of `count` sizes has where two or more are about alike."""
    pairs = list(islice(combinations(range(count), 2), LINES))
    half = np.linspace(-APART, APART, ON_LINES // len(pairs)) / 2
    lines = np.full((len(pairs), len(half), count), IDLE)
    for line, (left, right) in zip(lines, pairs, strict=True):
        line[:, left], line[:, right] = ALIKE + half, ALIKE - half
    random = Random(count)
    drawn = [random.uniform(*ANY_BYTES) for _ in range(ALIKE_AT_RANDOM * count if count > 2 else 0)]
    return np.concatenate((lines.reshape(-1, count), np.array(drawn).reshape(-1, count)))


@lru_cache(maxsize=64)
def skewed_points(dimensions: int) -> tuple[tuple[int, ...], ...]:
    """Return points at which each extent is small or large by itself; half of them small in all."""
    return _scattered(dimensions, islice(cycle((SMALLER, LARGER)), SKEWED))


@lru_cache(maxsize=64)
def small_points(dimensions: int) -> tuple[tuple[int, ...], ...]:
    """Return points at which each extent is small: what sizes are rounded up by counts there."""
    return _scattered(dimensions, repeat(SMALLER, SMALL_POINTS))


def _scattered(dimensions: int, ends: Iterable[float]) -> tuple[tuple[int, ...], ...]:
    """Return a point of several symbols for each of `ends`, the largest binary logarithm of its extents."""
    if dimensions < 2:
        return ()
    random = Random(dimensions)
    return tuple(tuple(round(2 ** random.uniform(0.0, end)) for _ in range(dimensions)) for end in ends)


def _line(first: float, last: float, factor: float) -> list[int]:
    found = {round(first)}
    while first < last:
        first *= factor
        found.add(round(first))
    return sorted(found)


def _around(point: tuple[int, ...], step: float) -> Iterator[tuple[int, ...]]:
    """Yield the points that lie a step away: along each axis, and along two of few."""
    moves = list(product((1 / step, 1.0, step), repeat=2))
    if len(point) == 2:
        yield from (tuple(round(e * f) for e, f in zip(point, move, strict=True)) for move in moves)
        return
    for axis in range(min(len(point), MOST_AXES)):
        for factor in (1 / step, step):
            yield (*point[:axis], round(point[axis] * factor), *point[axis + 1 :])

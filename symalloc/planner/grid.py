"""Grids of bindings, at which stackings are judged, and the shapes at which whole calls are compared.

Values are floats (exact below 2**53): they rank stackings and prove nothing.

Where two moments of a call take the same depends on the ratios of symbols, so samples chosen in advance miss
it.  The search starts from a lattice of extents (random ones for three or more symbols) and goes on around
the worst points, in ever smaller steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import chain, combinations_with_replacement, cycle, product
from operator import mul
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.expr import Expr, Monomial

Values: TypeAlias = NDArray[np.float64]
Truths: TypeAlias = NDArray[np.bool_]
Ranges: TypeAlias = Mapping[str, tuple[int, int | None]]

FINE = tuple(sorted({*(2**k for k in range(14)), *(3 * 2**k for k in range(12)), 5, 7, 127, 1000, 5000}))
COARSE = tuple(2**k for k in range(14))
TYPICAL = 192  # sequence models are mostly at the floor when they are packed with this extent
MOST_POINTS = 192  # of three or more symbols together; sizes that are compared with each other
MOST_LINES = 8  # symbols along which sizes are compared
MOST_CROSSINGS = 24
MOST_PRODUCTS = 200_000  # that BLAS is given at once: above some it starts threads, which take longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """`points` holds one value for each of `names`; a static problem has one point and no names."""

    names: tuple[str, ...]
    points: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.points)

    def binding(self, index: int) -> dict[str, int]:
        """The point of that index."""
        return dict(zip(self.names, self.points[index], strict=True))

    def values(self, exprs: Sequence[Expr]) -> Values:
        """One row for each expression, one column for each point; a zero divisor gives nan or infinity."""
        columns = Columns(self)
        numbers: dict[Monomial, int] = {}
        entries = [
            (row, numbers.setdefault(monomial, len(numbers)), coefficient)
            for row, e in enumerate(exprs)
            for monomial, coefficient in e.terms.items()
        ]
        coefficients = np.zeros((len(exprs), len(numbers)))
        for row, number, coefficient in entries:
            coefficients[row, number] = coefficient
        with np.errstate(divide="ignore", invalid="ignore"):
            products = np.array([columns.product(m) for m in numbers]).reshape(len(numbers), len(self))
            return _summed(coefficients, products)

    def nearest(self, wanted: Mapping[str, int]) -> int:
        """The index of the point nearest to `wanted`, by the ratio of extents."""
        logs = np.log(np.maximum(np.array(self.points, dtype=np.float64), 1.0))
        target = np.log([max(wanted[name], 1) for name in self.names])
        return int(np.abs(logs - target).sum(axis=1).argmin()) if self.names else 0


def score_grid(sizes: Sequence[Expr], ranges: Ranges, more: Iterable[Mapping[str, int]] = ()) -> Grid:
    """The grid for problems whose distinct sizes are `sizes`, with `more` bindings in it.

    It starts at each symbol's lower bound, 1 at least, and goes far past any declared upper bound: a plan
    must be good there too.
    """
    names = tuple(sorted(frozenset().union(*(size.symbols for size in sizes))))
    if not names:
        return Grid(names=(), points=((),))
    lows = [max(ranges.get(name, (1, None))[0], 1) for name in names]
    points = dict.fromkeys(_lattice(lows))
    points.update(dict.fromkeys(map(tuple, _crossings(names, lows, sizes[:MOST_POINTS]))))
    points.update(dict.fromkeys(tuple(one.get(name, TYPICAL) for name in names) for one in more))
    return Grid(names=names, points=tuple(points))


def _axis(low: int, steps: Sequence[int]) -> list[int]:
    further = (min(2 * low, INT64_MAX), min(16 * low, INT64_MAX)) if low > 1 else ()
    return sorted({low, *(step for step in steps if step >= low), *further})


def _lattice(lows: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All combinations of extents while they are few, then all symbols alike and a fixed random sample."""
    axes = [_axis(low, FINE if len(lows) == 1 else COARSE) for low in lows]
    if len(axes) <= 2:
        yield from product(*axes)
        return
    yield from (tuple(max(step, low) for low in lows) for step in COARSE)
    random = Random(len(axes))
    yield from (tuple(random.choice(axis) for axis in axes) for _ in range(MOST_POINTS))


def _lines(lows: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """The points of lines through the space along each symbol, the others typical; and of two more where
    there are others.
    """
    levels = (TYPICAL, 1, 4096) if len(lows) > 1 else (TYPICAL,)
    for index, lowest in enumerate(lows[:MOST_LINES]):
        for level in levels:
            rest = [max(level, low) for low in lows]
            yield [(*rest[:index], extent, *rest[index + 1 :]) for extent in _axis(lowest, COARSE)]


def _crossings(names: tuple[str, ...], lows: Sequence[int], sizes: Sequence[Expr]) -> Iterator[list[int]]:
    """The two points of each line around each place where the order of two sizes changes."""
    lines = list(_lines(lows))
    every = [point for line in lines for point in line]
    table = Grid(names=names, points=tuple(every)).values(sizes)
    found, start = list[tuple[int, int, int]](), 0
    for line in lines:
        values = table[:, start : start + len(line)]
        above = values[:, None] > values[None]
        changes = np.argwhere(above[..., 1:] != above[..., :-1]).tolist()
        found += [(a, b, start + i) for a, b, i in changes if a < b][:MOST_CROSSINGS]
        start += len(line)
    left, right, step = np.array(found, dtype=np.intp).reshape(-1, 3).T
    low, high = (np.array(every)[at] for at in (step, step + 1))
    at_low, each = table[left, step] > table[right, step], np.arange(len(found))
    while (middle := low + (high - low) // 2).tolist() != low.tolist():
        values = Grid(names=names, points=tuple(map(tuple, middle.tolist()))).values(sizes)
        alike = ((values[left, each] > values[right, each]) == at_low)[:, None]
        low, high = np.where(alike, middle, low), np.where(alike, high, middle)
    yield from (*low.tolist(), *high.tolist())


def _summed(coefficients: Values, products: Values) -> Values:
    """Each row of `coefficients` times `products`, of which those it has nothing of do not count: one may be
    undefined somewhere.
    """
    defined: Truths = np.logical_and.reduce(np.isfinite(products), axis=1)
    if defined.all():
        return matrix_product(coefficients, products)
    found = matrix_product(coefficients, np.where(defined[:, None], products, 0.0))
    for number in np.flatnonzero(~defined).tolist():
        having = np.flatnonzero(coefficients[:, number])
        found[having] += coefficients[having, number, None] * products[number]
    return found


def matrix_product(left: Values, right: Values) -> Values:
    """The product of two matrices, in parts that are small enough for one thread."""
    rows = max(MOST_PRODUCTS // max(right.size, 1), 1)
    if len(left) <= rows:
        whole: Values = left @ right
        return whole
    found = np.empty((len(left), right.shape[1]))
    for first in range(0, len(left), rows):
        np.matmul(left[first : first + rows], right, out=found[first : first + rows])
    return found


class Columns(Algebra[Values, Truths]):
    """Values at all points of `grid` at once, of each expression once."""

    def __init__(self, grid: Grid) -> None:
        self.count = len(grid)
        self.memo = {}
        table = np.fromiter(chain.from_iterable(grid.points), np.float64).reshape(-1, len(grid.names) or 1)
        self.columns = {name: table[:, i] for i, name in enumerate(grid.names)}

    def symbol(self, name: str) -> Values:
        return self.columns[name]

    def product(self, monomial: Monomial) -> Values:
        """The value of a product of atoms."""
        factors = [atom.fold(self) if power == 1 else atom.fold(self) ** power for atom, power in monomial]
        return reduce(mul, factors) if factors else np.ones(self.count)

    def total(self, terms: Sequence[Term[Values]]) -> Values:
        total = np.zeros(self.count)
        for coefficient, factors in terms:
            value: Values | float = float(coefficient)
            for factor, power in factors:
                value = value * (factor if power == 1 else factor**power)
            total += value
        return total

    def floordiv(self, numerator: Values, denominator: Values) -> Values:
        return np.floor_divide(numerator, denominator)

    def mod(self, numerator: Values, denominator: Values) -> Values:
        return np.mod(numerator, denominator)

    def minimum(self, operands: Sequence[Values]) -> Values:
        return reduce(np.minimum, operands)

    def maximum(self, operands: Sequence[Values]) -> Values:
        return reduce(np.maximum, operands)

    def select(self, condition: Truths, then: Values, otherwise: Values) -> Values:
        return np.where(condition, then, otherwise)

    def relation(self, operator: Operator, terms: Sequence[Term[Values]]) -> Truths:
        compare = {"<=": np.less_equal, "==": np.equal, "!=": np.not_equal}[operator]
        truth: Truths = compare(self.total(terms), 0.0)
        return truth

    def conjunction(self, operands: Sequence[Truths]) -> Truths:
        return reduce(np.logical_and, operands, np.full(self.count, True))

    def disjunction(self, operands: Sequence[Truths]) -> Truths:
        return reduce(np.logical_or, operands, np.full(self.count, False))


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
    where there is none.  Symbols that are `late` get their values from data.
    """

    lower: Mapping[str, int] = field(default_factory=dict)
    upper: Mapping[str, int] = field(default_factory=dict)
    late: frozenset[str] = frozenset()

    def grid(self, names: tuple[str, ...], points: Iterable[Sequence[int]]) -> Grid:
        """Return the grid of `points`, each extent moved within the bounds of its symbol."""
        if not names:
            return Grid(names=(), points=tuple(dict.fromkeys(map(tuple, points))))
        within = map(self._within, names, zip(*points, strict=True))
        return Grid(names=names, points=tuple(dict.fromkeys(zip(*within, strict=True))))

    def starting(self, names: tuple[str, ...], points: Points) -> Iterator[Sequence[int]]:
        """Yield `points`, and the same with `late` ones squared, and the product of two others."""
        yield from points
        late = self.late.intersection(names)
        others = [index for index, name in enumerate(names) if name not in late]
        pairs = cycle(combinations_with_replacement(others, 2) if late else ())
        for point, (one, other) in zip(points, pairs, strict=False):
            value = point[one] * point[other]
            yield [value if name in late else e for name, e in zip(names, point, strict=True)]
            yield [e * e if name in late else e for name, e in zip(names, point, strict=True)]

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
    grid = bounds.grid(names, (*bounds.starting(names, _samples(len(names))), *others))
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
    worst = _worst(excesses, bounds.grid(names, bounds.starting(names, starts)), {})
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

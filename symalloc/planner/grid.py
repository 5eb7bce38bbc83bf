"""Grids of bindings, at which stackings are judged.

Values are floats (exact below 2**53): they rank stackings and prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, product
from operator import mul
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
    points.update(dict.fromkeys(_crossings(list(_lines(names, lows)), sizes[:MOST_POINTS])))
    points.update(dict.fromkeys(tuple(one.get(name, TYPICAL) for name in names) for one in more))
    return Grid(names=names, points=tuple(points))


def _axis(low: int, steps: Sequence[int]) -> list[int]:
    return sorted({low, *(step for step in steps if step >= low), *((2 * low, 16 * low) if low > 1 else ())})


def _lattice(lows: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All combinations of extents while they are few, then all symbols alike and a fixed random sample."""
    axes = [_axis(low, FINE if len(lows) == 1 else COARSE) for low in lows]
    if len(axes) <= 2:
        yield from product(*axes)
        return
    yield from (tuple(max(step, low) for low in lows) for step in COARSE)
    random = Random(len(axes))
    yield from (tuple(random.choice(axis) for axis in axes) for _ in range(MOST_POINTS))


def _lines(names: Sequence[str], lows: Sequence[int]) -> Iterator[Grid]:
    """Lines through the space along each symbol, the others typical; and two more where there are others.

    A line has its symbol in front of the others.
    """
    levels = (TYPICAL, 1, 4096) if len(names) > 1 else (TYPICAL,)
    for index, name in enumerate(names[:MOST_LINES]):
        for level in levels:
            rest = [max(level, low) for low in lows]
            points = ((*rest[:index], extent, *rest[index + 1 :]) for extent in _axis(lows[index], COARSE))
            yield Grid(names=(name, *names), points=tuple((p[index], *p) for p in points))


def _crossings(lines: Sequence[Grid], sizes: Sequence[Expr]) -> Iterator[tuple[int, ...]]:
    """The two points of each line around each place where the order of two sizes changes."""
    every = Grid(names=lines[0].names[1:], points=tuple(p[1:] for line in lines for p in line.points))
    table, start = every.values(sizes), 0
    for line in lines:
        yield from _crossings_of(line, sizes, table[:, start : start + len(line)])
        start += len(line)


def _crossings_of(line: Grid, sizes: Sequence[Expr], table: Values) -> Iterator[tuple[int, ...]]:
    """The points of a line, at which `table` holds the values of `sizes`."""
    moving, names = line.names[0], line.names[1:]
    above = table[:, None, :] > table[None, :, :]
    lefts, rights, steps = np.nonzero(above[:, :, 1:] != above[:, :, :-1])
    found = 0
    for left, right, step in zip(lefts.tolist(), rights.tolist(), steps.tolist(), strict=True):
        if left < right and found < MOST_CROSSINGS:
            found += 1
            base = dict(zip(names, line.points[step][1:], strict=True))
            low, high = line.points[step][0], line.points[step + 1][0]
            for extent in _bisect(sizes[left], sizes[right], base, moving, low, high):
                yield tuple(extent if name == moving else base[name] for name in names)


def _bisect(
    left: Expr, right: Expr, base: dict[str, int], moving: str, low: int, high: int
) -> tuple[int, int]:
    """Neighbouring extents between `low` and `high` where `left > right` changes its truth."""

    def above(extent: int) -> bool:
        binding = {**base, moving: extent}
        return left.evaluate(binding) > right.evaluate(binding)

    at_low = above(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if above(middle) is at_low else (low, middle)
    return low, high


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

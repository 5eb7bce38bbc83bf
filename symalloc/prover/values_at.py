"""Exact values of many expressions at a few points, in which they share most of what they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add, eq, floordiv, le, mod, mul, ne
from typing import TypeAlias

from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.expr import Expr

Column: TypeAlias = Sequence[int]
"""A value at each of the points."""

_COMPARED = {"<=": le, "==": eq, "!=": ne}


class ValuesAt(Algebra[Column, Sequence[bool]]):
    """The values at `points`: each expression, and each inside another, is evaluated once.

    A fold raises ZeroDivisionError where a divisor is zero at one of the points.
    """

    def __init__(self, points: Sequence[Mapping[str, int]]) -> None:
        self.points = points
        self.memo: dict[Expr, Column] = {}
        self._each: Sequence[ValuesAt] = ()  # point by point, where a divisor is zero at some

    def values(self, expr: Expr) -> Sequence[int | None]:
        """Return the value at each point, None where a divisor is zero."""
        try:
            return expr.fold(self)
        except ZeroDivisionError:
            if len(self.points) == 1:
                return [None]
            self._each = self._each or [ValuesAt([point]) for point in self.points]
            return [one.values(expr)[0] for one in self._each]

    def symbol(self, name: str) -> Column:
        return [point[name] for point in self.points]

    def total(self, terms: Sequence[Term[Column]]) -> Column:
        total: Column = [0] * len(self.points)
        for coefficient, factors in terms:
            product: Column = [coefficient] * len(self.points)
            for factor, power in factors:
                product = list(map(mul, product, factor if power == 1 else [one**power for one in factor]))
            total = list(map(add, total, product))
        return total

    def floordiv(self, numerator: Column, denominator: Column) -> Column:
        return list(map(floordiv, numerator, denominator))

    def mod(self, numerator: Column, denominator: Column) -> Column:
        return list(map(mod, numerator, denominator))

    def minimum(self, operands: Sequence[Column]) -> Column:
        return list(map(min, *operands))

    def maximum(self, operands: Sequence[Column]) -> Column:
        return list(map(max, *operands))

    def select(self, condition: Sequence[bool], then: Column, otherwise: Column) -> Column:
        return [a if chosen else b for chosen, a, b in zip(condition, then, otherwise, strict=True)]

    def relation(self, operator: Operator, terms: Sequence[Term[Column]]) -> Sequence[bool]:
        compared = _COMPARED[operator]
        return [bool(compared(value, 0)) for value in self.total(terms)]

    def conjunction(self, operands: Sequence[Sequence[bool]]) -> Sequence[bool]:
        return [all(one[i] for one in operands) for i in range(len(self.points))]

    def disjunction(self, operands: Sequence[Sequence[bool]]) -> Sequence[bool]:
        return [any(one[i] for one in operands) for i in range(len(self.points))]

"""Exact values of many expressions at one point, in which they share most of what they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import eq, le, ne

from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.expr import Expr

_COMPARED = {"<=": le, "==": eq, "!=": ne}


class ValuesAt(Algebra[int, bool]):
    """The values at `point`: each expression, and each inside another, is evaluated once."""

    def __init__(self, point: Mapping[str, int]) -> None:
        self.point = point
        self.memo: dict[Expr, int] = {}

    def value(self, expr: Expr) -> int | None:
        """Return the value, or None where a divisor is zero."""
        try:
            return expr.fold(self)
        except ZeroDivisionError:
            return None

    def symbol(self, name: str) -> int:
        return self.point[name]

    def total(self, terms: Sequence[Term[int]]) -> int:
        total = 0
        for coefficient, factors in terms:
            for factor, power in factors:
                coefficient *= factor if power == 1 else factor**power
            total += coefficient
        return total

    def floordiv(self, numerator: int, denominator: int) -> int:
        return numerator // denominator

    def mod(self, numerator: int, denominator: int) -> int:
        return numerator % denominator

    def minimum(self, operands: Sequence[int]) -> int:
        return min(operands)

    def maximum(self, operands: Sequence[int]) -> int:
        return max(operands)

    def select(self, condition: bool, then: int, otherwise: int) -> int:
        return then if condition else otherwise

    def relation(self, operator: Operator, terms: Sequence[Term[int]]) -> bool:
        return bool(_COMPARED[operator](self.total(terms), 0))

    def conjunction(self, operands: Sequence[bool]) -> bool:
        return all(operands)

    def disjunction(self, operands: Sequence[bool]) -> bool:
        return any(operands)

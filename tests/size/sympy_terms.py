"""Sizes as sympy terms: one more algebra, to check what is read from sympy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr


class _SympyTerms(Algebra[Any, Any]):
    def symbol(self, name: str) -> Any:
        return sympy.Symbol(name, integer=True)

    def total(self, terms: Sequence[Term[Any]]) -> Any:
        return sympy.Add(*(sympy.Mul(c, *(f**power for f, power in factors)) for c, factors in terms))

    def floordiv(self, numerator: Any, denominator: Any) -> Any:
        return sympy.floor(numerator / denominator)

    def mod(self, numerator: Any, denominator: Any) -> Any:
        return sympy.Mod(numerator, denominator)

    def minimum(self, operands: Sequence[Any]) -> Any:
        return sympy.Min(*operands)

    def maximum(self, operands: Sequence[Any]) -> Any:
        return sympy.Max(*operands)

    def select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return sympy.Piecewise((then, condition), (otherwise, True))

    def relation(self, operator: Operator, terms: Sequence[Term[Any]]) -> Any:
        return {"<=": sympy.Le, "==": sympy.Eq, "!=": sympy.Ne}[operator](self.total(terms), 0)

    def conjunction(self, operands: Sequence[Any]) -> Any:
        return sympy.And(*operands)

    def disjunction(self, operands: Sequence[Any]) -> Any:
        return sympy.Or(*operands)


def to_sympy(subject: Expr | Condition) -> Any:
    """`subject` as a sympy expression or Boolean over integer symbols of the same names."""
    return subject.fold(_SympyTerms())

"""Sizes and conditions as sympy's.  Importing this imports sympy.

Floor division becomes `floor(a/b)`, a choice `Piecewise`.  Nothing is evaluated that rests on symbols being
nonnegative: a scalar may be below zero where `Max(n, 0)` and `n >= 0` are asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from symalloc.size.algebra import Algebra, Operator, Term

_RELATIONS = {"<=": sympy.Le, "==": sympy.Eq, "!=": sympy.Ne}


def symbols(names: str) -> Any:
    """The symbols of sympy that sizes are written in, by their names: one, or a tuple of several.

    `n, m = symalloc.symbols("n m")`.  They are integer and nonnegative.
    """
    return sympy.symbols(names, integer=True, nonnegative=True)


class SympyTerms(Algebra[Any, Any]):
    """The algebra of sympy's expressions and Booleans."""

    def symbol(self, name: str) -> Any:
        return sympy.Symbol(name, integer=True, nonnegative=True)

    def total(self, terms: Sequence[Term[Any]]) -> Any:
        return sympy.Add(*(sympy.Mul(c, *(f**power for f, power in factors)) for c, factors in terms))

    def floordiv(self, numerator: Any, denominator: Any) -> Any:
        return sympy.floor(numerator / denominator)

    def mod(self, numerator: Any, denominator: Any) -> Any:
        return sympy.Mod(numerator, denominator)

    def minimum(self, operands: Sequence[Any]) -> Any:
        return sympy.Min(*operands, evaluate=False)

    def maximum(self, operands: Sequence[Any]) -> Any:
        return sympy.Max(*operands, evaluate=False)

    def select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return sympy.Piecewise((then, condition), (otherwise, True), evaluate=False)

    def relation(self, operator: Operator, terms: Sequence[Term[Any]]) -> Any:
        left, right = self.difference(terms)
        return _RELATIONS[operator](left, right, evaluate=not (left.free_symbols or right.free_symbols))

    def conjunction(self, operands: Sequence[Any]) -> Any:
        return sympy.And(*operands, evaluate=False) if operands else sympy.true

    def disjunction(self, operands: Sequence[Any]) -> Any:
        return sympy.Or(*operands, evaluate=False) if operands else sympy.false

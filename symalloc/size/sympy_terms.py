"""Sizes and conditions as sympy's.  Importing this imports sympy.

Floor division becomes `floor(a/b)`, a choice `Piecewise`.  Nothing is evaluated here: that would rest on
symbols being nonnegative, although a scalar may be below zero, and sympy 1.14 takes `Mod(n*Mod(n, 3), 4)` for
`Mod(n*Mod(n, 3)**2, 4)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from symalloc.errors import UsageError, shown
from symalloc.size.algebra import Algebra, Operator, Term

_RELATIONS = {"<=": sympy.Le, "==": sympy.Eq, "!=": sympy.Ne}


def symbols(names: str) -> Any:
    """The symbols of sympy that sizes are written in, by their names: one, or a tuple of several.

    `n, m = symalloc.symbols("n m")`.  Integer and nonnegative.  Raises UsageError where they are no names.
    """
    found = names.replace(",", " ").split() if isinstance(names, str) else []
    if not found or not all(name.isidentifier() for name in found):
        raise UsageError(f'names is {shown(names)}; it must be names, such as "n m"')
    return sympy.symbols(names, integer=True, nonnegative=True)


class SympyTerms(Algebra[Any, Any]):
    """The algebra of sympy's expressions and Booleans."""

    def symbol(self, name: str) -> Any:
        return sympy.Symbol(name, integer=True, nonnegative=True)

    def total(self, terms: Sequence[Term[Any]]) -> Any:
        return sympy.Add(*(sympy.Mul(c, *(f**power for f, power in factors)) for c, factors in terms))

    def floordiv(self, numerator: Any, denominator: Any) -> Any:
        ratio = numerator / denominator
        return sympy.floor(ratio, evaluate=not ratio.free_symbols)

    def mod(self, numerator: Any, denominator: Any) -> Any:
        known = not (numerator.free_symbols or denominator.free_symbols)
        return sympy.Mod(numerator, denominator, evaluate=known) if denominator != 0 else sympy.nan

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

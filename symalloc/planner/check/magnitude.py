"""A polynomial that no value of an expression exceeds in size, for the validator's question of 64 bits.

Written apart from the guards, which bound values before the plan is judged: neither relies on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd, lcm
from typing import TypeAlias

from symalloc.prover.ordering import SyntacticOrder
from symalloc.size.choice import Max, Min, Select, maximum
from symalloc.size.expr import ZERO, Atom, Expr, FloorDiv, Mod, Monomial, from_atom
from symalloc.size.polynomial import multiply

_Scaled: TypeAlias = tuple[Mapping[Monomial, int], int]
"""The terms of a polynomial, and what all of them are to be divided by."""


class Magnitudes:
    """Remembers the bound of every expression and atom that it met: offsets share most of what they are made
    of.
    """

    __slots__ = ("_atoms", "_known", "_order")

    def __init__(self, order: SyntacticOrder) -> None:
        self._order = order
        self._known: dict[Expr, _Scaled] = {}
        self._atoms: dict[Atom, _Scaled] = {}

    def scaled(self, expr: Expr) -> tuple[Expr, int]:
        """`(p, d)` with d*|expr| <= p everywhere and p a polynomial over what is never negative: symbols, and
        max(s, -s) for a symbol s that can be.

        No sum of terms of `expr` exceeds it either.  Divisors are taken to be at least 1.
        """
        terms, scale = self._expr(expr)
        common = gcd(scale, *terms.values())
        return Expr({m: c // common for m, c in terms.items() if c}), scale // common

    def _expr(self, expr: Expr) -> _Scaled:
        """The sum of the magnitudes of the terms."""
        found = self._known.get(expr)
        if found is None:
            parts, scale = _alike([self._monomial(monomial) for monomial in expr.terms])
            total: dict[Monomial, int] = {}
            for (terms, factor), coefficient in zip(parts, expr.terms.values(), strict=True):
                for m, c in terms.items():
                    total[m] = total.get(m, 0) + abs(coefficient) * factor * c
            found = self._known[expr] = total, scale
        return found

    def _monomial(self, monomial: Monomial) -> _Scaled:
        if len(monomial) == 1 and monomial[0][1] == 1:
            return self._atom(monomial[0][0])
        product: _Scaled = {(): 1}, 1
        for atom, power in monomial:
            for _ in range(power):
                product = _product(product, self._atom(atom))
        return product

    def _atom(self, atom: Atom) -> _Scaled:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._bound(atom)
        return found

    def _bound(self, atom: Atom) -> _Scaled:
        match atom:
            case FloorDiv(numerator=above, denominator=below):
                divisor = max(below.as_constant or 1, 1)
                terms, scale = self._expr(above)
                if not self._order.at_most(ZERO, above):  # it rounds away from zero
                    terms = {**terms, (): terms.get((), 0) + divisor * scale}
                return terms, scale * divisor
            case Mod(denominator=below):
                return self._expr(below)
            case Min(operands=operands):  # what is not negative bounds it from above
                return self._largest(_without(lambda value: value >= 0, operands))
            case Max(operands=operands):
                return self._largest(_without(lambda value: value <= 0, operands))
            case Select(then=then, otherwise=otherwise):
                return self._largest((then, otherwise))
        size = from_atom(atom)
        if not self._order.at_most(ZERO, size):
            size = maximum(size, -size)
        return size.terms, 1

    def _largest(self, operands: Iterable[Expr]) -> _Scaled:
        """Term by term the largest coefficient: at least the magnitude of each operand."""
        parts, scale = _alike([self._expr(operand) for operand in operands])
        total: dict[Monomial, int] = {}
        for terms, factor in parts:
            for m, c in terms.items():
                total[m] = max(factor * c, total.get(m, 0))
        return total, scale


def _without(idle: Callable[[int], bool], operands: Sequence[Expr]) -> Sequence[Expr]:
    """The operands but for constants that are `idle`, unless there are no others."""
    return [e for e in operands if (value := e.as_constant) is None or not idle(value)] or operands


def _alike(found: Sequence[_Scaled]) -> tuple[list[tuple[Mapping[Monomial, int], int]], int]:
    """The terms of each with the factor that brings them to one scale, and this scale."""
    scale = lcm(*(own for _, own in found))
    return [(terms, scale // own) for terms, own in found], scale


def _product(left: _Scaled, right: _Scaled) -> _Scaled:
    total: dict[Monomial, int] = {}
    for a, x in left[0].items():
        for b, y in right[0].items():
            monomial = multiply(a, b)
            total[monomial] = total.get(monomial, 0) + x * y
    return total, left[1] * right[1]

"""A polynomial that no value of an expression exceeds in size, for the validator's question of 64 bits.

Written apart from the guards, which bound values before the plan is judged: neither relies on the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import lcm

from symalloc.prover.syntactic import SyntacticOrder
from symalloc.size.choice import Max, Min, Select, maximum
from symalloc.size.expr import ZERO, Atom, Expr, FloorDiv, Mod, Monomial, from_atom
from symalloc.size.polynomial import multiply

_Terms = Mapping[Monomial, Fraction]


class Magnitudes:
    """Remembers the bound of every expression asked about: offsets share most of what they are made of."""

    __slots__ = ("_known", "_order")

    def __init__(self, order: SyntacticOrder) -> None:
        self._order = order
        self._known: dict[Expr, _Terms] = {}

    def scaled(self, expr: Expr) -> tuple[Expr, int]:
        """`(p, d)` with d*|expr| <= p everywhere and p a polynomial over what is never negative: symbols, and
        max(s, -s) for a symbol s that can be.

        Divisors are taken to be at least 1.
        """
        terms = self._expr(expr)
        scale = lcm(*(c.denominator for c in terms.values()))
        return Expr({m: int(c * scale) for m, c in terms.items() if c}), scale

    def _expr(self, expr: Expr) -> _Terms:
        """The sum of the magnitudes of the terms."""
        found = self._known.get(expr)
        if found is None:
            total: dict[Monomial, Fraction] = {}
            for monomial, coefficient in expr.terms.items():
                for m, c in self._monomial(monomial).items():
                    total[m] = total.get(m, Fraction(0)) + abs(coefficient) * c
            found = self._known[expr] = total
        return found

    def _monomial(self, monomial: Monomial) -> _Terms:
        product: _Terms = {(): Fraction(1)}
        for atom, power in monomial:
            for _ in range(power):
                product = _product(product, self._atom(atom))
        return product

    def _atom(self, atom: Atom) -> _Terms:
        match atom:
            case FloorDiv(numerator=above, denominator=below):
                divisor = below.as_constant or 1
                terms = dict(self._expr(above))
                if not self._order.at_most(ZERO, above):
                    terms[()] = terms.get((), Fraction(0)) + divisor  # it rounds away from zero
                return {m: c / divisor for m, c in terms.items()}
            case Mod(denominator=below):
                return self._expr(below)
            case Min(operands=operands) | Max(operands=operands):
                return self._largest(operands)
            case Select(then=then, otherwise=otherwise):
                return self._largest((then, otherwise))
        size = from_atom(atom)
        if not self._order.at_most(ZERO, size):
            size = maximum(size, -size)
        return {m: Fraction(c) for m, c in size.terms.items()}

    def _largest(self, operands: Iterable[Expr]) -> _Terms:
        """Term by term the largest coefficient: at least the magnitude of each operand."""
        total: dict[Monomial, Fraction] = {}
        for operand in operands:
            for m, c in self._expr(operand).items():
                total[m] = max(c, total.get(m, Fraction(0)))
        return total


def _product(left: _Terms, right: _Terms) -> _Terms:
    total: dict[Monomial, Fraction] = {}
    for a, x in left.items():
        for b, y in right.items():
            monomial = multiply(a, b)
            total[monomial] = total.get(monomial, Fraction(0)) + x * y
    return total

"""Polynomials that no value of an expression exceeds in size, for the guards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import lcm
from operator import add
from typing import TypeAlias

from symalloc.size.choice import Max, Min, Select
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Monomial, multiply

Bound: TypeAlias = tuple[Mapping[Monomial, int], int]
"""A polynomial over magnitudes of symbols, coefficients >= 0, and what all of them are to be divided by."""


class ValueBounds:
    """Bounds of expressions and of the atoms in them, each worked out once."""

    __slots__ = ("_atoms", "_exprs")

    def __init__(self) -> None:
        self._exprs: dict[Expr, Bound] = {}
        self._atoms: dict[Atom, Bound] = {}

    def magnitude(self, expr: Expr) -> Expr:
        """A polynomial in the magnitudes of the symbols that is >= |expr| and >= the magnitude of each sum of
        its terms.
        """
        terms, scale = self._expr(expr)
        return Expr({m: -(-c // scale) for m, c in terms.items() if c})

    def _expr(self, expr: Expr) -> Bound:
        found = self._exprs.get(expr)
        if found is None:
            parts, scale = _at_one_scale([self._monomial(monomial) for monomial in expr.terms])
            scaled = (
                (m, abs(coefficient) * c)
                for terms, coefficient in zip(parts, expr.terms.values(), strict=True)
                for m, c in terms
            )
            found = self._exprs[expr] = _collected(scaled), scale
        return found

    def _monomial(self, monomial: Monomial) -> Bound:
        factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
        return reduce(_times, factors) if factors else ({(): 1}, 1)

    def _atom(self, atom: Atom) -> Bound:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._bound(atom)
        return found

    def _bound(self, atom: Atom) -> Bound:
        match atom:
            case FloorDiv(numerator=numerator, denominator=denominator):
                divisor = denominator.as_constant
                bound = self._expr(numerator)
                return _divided(bound, divisor) if divisor and divisor > 0 else bound
            case Mod(numerator=numerator, denominator=denominator):
                return self._combined((numerator, denominator), add)
            case Min(operands=operands) | Max(operands=operands):
                return self._combined(_bounding(atom, operands), max)
            case Select(then=then, otherwise=otherwise):
                return self._combined((then, otherwise), max)
        return {((atom, 1),): 1}, 1

    def _combined(self, operands: Iterable[Expr], combine: Callable[[int, int], int]) -> Bound:
        """The coefficients' sums, or their maxima: at least each operand's bound, because all terms are >=
        0.
        """
        parts, scale = _at_one_scale([self._expr(operand) for operand in operands])
        return _collected((term for part in parts for term in part), combine), scale


def _bounding(atom: Min | Max, operands: Sequence[Expr]) -> Sequence[Expr]:
    """The operands that bound the magnitude of `atom`: constants >= 0 add nothing to that of a minimum.

    The minimum is at most each operand; where it is negative it is another one.  A maximum mirrors it.
    """
    sign = 1 if isinstance(atom, Min) else -1
    return [e for e in operands if e.as_constant is None or sign * e.as_constant < 0] or operands


def _divided(bound: Bound, divisor: int) -> Bound:
    """|n // d| <= |n| / d, but for -1 // d, which is -1: one is added for the rounding."""
    terms, scale = bound[0], bound[1] * divisor
    return {**terms, (): terms.get((), 0) + scale}, scale


def _at_one_scale(bounds: Sequence[Bound]) -> tuple[list[list[tuple[Monomial, int]]], int]:
    """The terms of each bound in units of one part, and how many such parts a whole has."""
    scale = lcm(*(own for _, own in bounds))
    return [[(m, c * (scale // own)) for m, c in terms.items()] for terms, own in bounds], scale


def _times(left: Bound, right: Bound) -> Bound:
    products = ((multiply(a, b), x * y) for a, x in left[0].items() for b, y in right[0].items())
    return _collected(products), left[1] * right[1]


def _collected(
    terms: Iterable[tuple[Monomial, int]], combine: Callable[[int, int], int] = add
) -> dict[Monomial, int]:
    """Return the coefficients of `terms` by monomial, those of one monomial combined."""
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = combine(total[monomial], coefficient) if monomial in total else coefficient
    return total

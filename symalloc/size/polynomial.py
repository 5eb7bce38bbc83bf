"""Polynomials with integer coefficients over keyed factors: exact arithmetic in a canonical form.

A polynomial is a sum of terms; a term is an integer coefficient times a monomial; a monomial is a product
of factors with positive powers.  What the factors mean does not matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import comb
from typing import Generic, Self, TypeAlias, TypeVar

from symalloc.size.cached_property import cached_property


class Factor:
    """A factor of a monomial; it orders, compares and hashes by `key`, the text of its canonical form."""

    key: str

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Factor) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Factor) -> bool:
        return self.key < other.key


F = TypeVar("F", bound=Factor)
Powers: TypeAlias = tuple[tuple[F, int], ...]  # factors in the order of their keys, powers from 1


class Polynomial(Generic[F]):
    """An immutable, hashable polynomial; equal polynomials are equal objects."""

    __slots__ = ("__dict__", "_hash", "terms")

    terms: Mapping[Powers[F], int]

    def __init__(self, terms: Mapping[Powers[F], int]) -> None:
        """`terms` must hold no zero coefficient and sorted monomials; callers outside this room use the
        operators.
        """
        self.terms = terms
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Polynomial):
            return self.terms == other.terms
        if isinstance(other, int):
            return self.terms == ({(): other} if other else {})
        return NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __reduce__(self) -> tuple[type[Self], tuple[dict[Powers[F], int]]]:
        return type(self), (dict(self.terms),)  # a cached hash is worth nothing in another process

    @cached_property
    def key(self) -> str:
        """The text of the canonical form: equal for equal expressions, and the order of factors."""
        if len(self.terms) <= 1:
            return "+".join(_term_key(m, c) for m, c in self.terms.items()) or "0"
        return "+".join(sorted(_term_key(m, c) for m, c in self.terms.items()))

    def __add__(self, other: Self | int) -> Self:
        other = self._lifted(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        total = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total[monomial] = total.get(monomial, 0) + coefficient
            if not total[monomial]:
                del total[monomial]
        return type(self)(total)

    __radd__ = __add__

    def __neg__(self) -> Self:
        return type(self)({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Self | int) -> Self:
        return self + (-self._lifted(other))

    def __rsub__(self, other: Self | int) -> Self:
        return (-self) + other

    def __mul__(self, other: Self | int) -> Self:
        if isinstance(other, int):
            return self._scaled(other)
        if len(other.terms) == 1 and () in other.terms:
            return self._scaled(other.terms[()])
        if len(self.terms) == 1 and () in self.terms:
            return other._scaled(self.terms[()])
        total: dict[Powers[F], int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = multiply(left, right)
                total[monomial] = total.get(monomial, 0) + a * b
        return type(self)({m: c for m, c in total.items() if c})

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Self:
        if exponent < 0:
            raise ValueError("a polynomial has no negative powers")
        if exponent == 1:
            return self
        return reduce(lambda a, _: a * self, range(exponent), self._lifted(1))

    @property
    def as_constant(self) -> int | None:
        """The value, where the polynomial has no atoms; otherwise None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1:
            return self.terms.get(())
        return None

    @property
    def as_atom(self) -> F | None:
        """The atom, where the polynomial is exactly one; otherwise None."""
        if len(self.terms) != 1:
            return None
        ((monomial, coefficient),) = self.terms.items()
        if coefficient != 1 or len(monomial) != 1 or monomial[0][1] != 1:
            return None
        return monomial[0][0]

    @cached_property
    def atoms(self) -> frozenset[F]:
        """The atoms at the top level (not those inside another atom)."""
        return frozenset(atom for monomial in self.terms for atom, _ in monomial)

    def map_atoms(self, change: Callable[[F], Self | None]) -> Self:
        """The polynomial with each top-level atom replaced by `change(atom)`; None keeps the atom."""
        total: dict[Powers[F], int] = {}
        for monomial, coefficient in self.terms.items():
            for key, value in self._changed(monomial, change).items():
                total[key] = total.get(key, 0) + coefficient * value
        return type(self)({m: c for m, c in total.items() if c})

    def shift(self, offsets: Mapping[str, int]) -> Self:
        """The polynomial with `offsets[key]` added to each factor; itself where that changes nothing."""
        if not any(offsets.get(atom.key) for atom in self.atoms):
            return self
        total: dict[Powers[F], int] = {}
        for monomial, coefficient in self.terms.items():
            for key, value in _expanded(monomial, coefficient, offsets).items():
                total[key] = total.get(key, 0) + value
        return type(self)({m: c for m, c in total.items() if c})

    def over(self, monomial: Powers[F]) -> Self | None:
        """The polynomial divided by a monomial; None where some term does not have it."""
        terms: dict[Powers[F], int] = {}
        for powers, coefficient in self.terms.items():
            rest = divide(powers, monomial)
            if rest is None:
                return None
            terms[rest] = coefficient
        return type(self)(terms)

    def _lifted(self, value: Self | int) -> Self:
        return type(self)({(): value} if value else {}) if isinstance(value, int) else value

    def _scaled(self, factor: int) -> Self:
        if factor == 1:
            return self
        return type(self)({m: c * factor for m, c in self.terms.items()} if factor else {})

    def _changed(self, monomial: Powers[F], change: Callable[[F], Self | None]) -> Mapping[Powers[F], int]:
        """The terms of `monomial` after `change`."""
        if len(monomial) == 1 and monomial[0][1] == 1:
            alone = change(monomial[0][0])
            return {monomial: 1} if alone is None else alone.terms
        kept: list[tuple[F, int]] = []
        term: Self | None = None
        for factor in monomial:
            changed = change(factor[0])
            if changed is None:
                kept.append(factor)
            else:
                changed = changed ** factor[1]
                term = changed if term is None else term * changed
        if term is None:
            return {monomial: 1}
        rest = tuple(kept)
        return {multiply(rest, key): value for key, value in term.terms.items()} if rest else term.terms


def multiply(left: Powers[F], right: Powers[F]) -> Powers[F]:
    """The product of two monomials."""
    if not left:
        return right
    if not right:
        return left
    if left[-1][0].key < right[0][0].key:
        return left + right
    if right[-1][0].key < left[0][0].key:
        return right + left
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].key))


def divide(left: Powers[F], right: Powers[F]) -> Powers[F] | None:
    """The monomial that `right` is to be multiplied by to give `left`; None where there is none."""
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) - power
        if powers[atom] < 0:
            return None
    return tuple((atom, power) for atom, power in powers.items() if power)


def degree(monomial: Powers[F]) -> int:
    """The sum of the powers."""
    return sum(power for _, power in monomial)


def _expanded(monomial: Powers[F], coefficient: int, offsets: Mapping[str, int]) -> dict[Powers[F], int]:
    """The terms of `coefficient * monomial` with offsets added to its symbols, by the binomial theorem."""
    terms: dict[Powers[F], int] = {(): coefficient}
    for factor in monomial:
        atom, power = factor
        offset = offsets.get(atom.key, 0)
        if not offset:
            terms = {(*m, factor): c for m, c in terms.items()}
            continue
        terms = {
            (*m, (atom, k)) if k else m: c * comb(power, k) * offset ** (power - k)
            for m, c in terms.items()
            for k in range(power + 1)
        }
    return terms


def _term_key(monomial: Powers[F], coefficient: int) -> str:
    """The text of a term in the canonical form."""
    factors = [f"{atom.key}^{power}" if power > 1 else atom.key for atom, power in monomial]
    return "*".join([str(coefficient), *factors])

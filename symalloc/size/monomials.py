"""Monomials: products of atoms, sorted by key."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb

from symalloc.size.atoms import Monomial

__all__ = ["expanded", "multiply", "term_key"]


def multiply(left: Monomial, right: Monomial) -> Monomial:
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


def expanded(monomial: Monomial, coefficient: int, offsets: Mapping[str, int]) -> dict[Monomial, int]:
    """The terms of `coefficient * monomial` with offsets added to its symbols, by the binomial theorem."""
    terms: dict[Monomial, int] = {(): coefficient}
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


def term_key(monomial: Monomial, coefficient: int) -> str:
    """The text of a term in the canonical form."""
    factors = [f"{atom.key}^{power}" if power > 1 else atom.key for atom, power in monomial]
    return "*".join([str(coefficient), *factors])

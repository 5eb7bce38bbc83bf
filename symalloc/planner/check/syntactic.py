"""Inequalities that can be seen to hold, for the validator: every term of the difference is at least zero.

Nothing is built and nothing is searched, so a module's thousands of questions cost microseconds each.  What
cannot be seen goes to the prover.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from symalloc.prover.domain import Domain
from symalloc.size.choice import Max, Min, Select
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Monomial, Symbol

MOST_ALTERNATIVES = 256
MOST_QUOTIENTS = 6  # that are replaced by their bounds in one difference


class SyntacticOrder:
    """Remembers which atoms are never negative over the bounds of `domain`; its assumptions are not used."""

    __slots__ = ("_atoms", "_domain")

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._atoms: dict[Atom, bool] = {}

    def at_most(self, low: Expr, high: Expr) -> bool:
        """Return whether `low <= high` is seen to hold at every point; False says nothing."""
        nodes = _expanded(high)[0]

        def below(expr: Expr) -> bool:
            return any(self._terms_at_most(expr.terms, node.terms) for node in nodes)

        if below(low) or all(map(below, candidates(low))):
            return True
        if low.is_polynomial and high.is_polynomial:
            return False
        whole = any(self._roughly_at_most(low, b) for b in nodes)
        return whole or all(any(self._roughly_at_most(a, b) for b in nodes) for a in candidates(low))

    def _terms_at_most(self, low: Mapping[Monomial, int], high: Mapping[Monomial, int]) -> bool:
        """Return whether each term of `high - low` is >= 0."""
        for monomial, coefficient in low.items():
            rest = high.get(monomial, 0) - coefficient
            if rest < 0 or (rest and not self._monomial(monomial)):
                return False
        return all(c >= 0 and self._monomial(m) for m, c in high.items() if m not in low)

    def _roughly_at_most(self, low: Expr, high: Expr) -> bool:
        """The same once quotients in the difference are replaced by the bounds that rounding leaves them."""
        difference = high - low
        for _ in range(MOST_QUOTIENTS):
            relaxed = _without_quotient(difference)
            if relaxed is None:
                break
            difference = relaxed
        return self._expr(difference)

    def _monomial(self, monomial: Monomial) -> bool:
        return all(power % 2 == 0 or self._atom(atom) for atom, power in monomial)

    def _atom(self, atom: Atom) -> bool:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._never_negative(atom)
        return found

    def _expr(self, expr: Expr) -> bool:
        return all(c >= 0 and self._monomial(m) for m, c in expr.terms.items())

    def _never_negative(self, atom: Atom) -> bool:
        match atom:
            case Symbol(name=name):
                return self._domain.lower_of(name) >= 0
            case FloorDiv(numerator=above, denominator=below):
                return (below.as_constant or 0) > 0 and self._expr(above)
            case Mod(denominator=below):
                return (below.as_constant or 0) > 0
            case Max(operands=operands):
                return any(map(self._expr, operands)) or any(-operand in operands for operand in operands)
            case Min(operands=operands):
                return all(map(self._expr, operands))
            case Select(then=then, otherwise=otherwise):
                return self._expr(then) and self._expr(otherwise)
        return False


def alternatives(expr: Expr) -> tuple[Expr, ...]:
    """Expressions whose maximum is `expr`: its other terms are added to each operand of a maximum in it."""
    return _expanded(expr)[1]


def _without_quotient(expr: Expr) -> Expr | None:
    """A positive multiple of something that is at most `expr`, with one `a // d` less; None where there is
    none.

    a // d lies between (a - d + 1) / d and a / d.
    """
    for monomial, coefficient in expr.terms.items():
        if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], FloorDiv):
            atom = monomial[0][0]
            divisor = atom.denominator.as_constant or 0
            if divisor > 0:
                rest = expr - Expr({monomial: coefficient})
                bound = atom.numerator - (divisor - 1) if coefficient > 0 else atom.numerator
                return divisor * rest + coefficient * bound
    return None


@lru_cache(maxsize=8192)
def _expanded(expr: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """`expr` with the expressions that its maxima lead to, none of which exceeds it; and the last of them."""
    if expr.is_polynomial:
        return (expr,), (expr,)
    nodes, last = [expr], []
    for node in nodes:  # which grows as it is walked
        found = _spread(node) if len(nodes) <= MOST_ALTERNATIVES else ()
        nodes += found
        if not found:
            last.append(node)
    return tuple(nodes), tuple(last)


def candidates(expr: Expr) -> tuple[Expr, ...]:
    """Expressions of which one is `expr` at every point: its alternatives, or remainders of alternatives."""
    if len(expr.terms) == 1:
        ((monomial, coefficient),) = expr.terms.items()
        atom = monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 else None
        if isinstance(atom, Mod):
            return tuple(coefficient * (e % atom.denominator) for e in alternatives(atom.numerator))
    return alternatives(expr)


def _spread(expr: Expr) -> tuple[Expr, ...]:
    """The alternatives by one maximum with a positive coefficient; none where there is no such maximum."""
    for monomial, coefficient in expr.terms.items():
        if coefficient > 0 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            if isinstance(atom, Max):
                rest = expr - Expr({monomial: coefficient})
                return tuple(rest + coefficient * operand for operand in atom.operands)
    return ()

"""Inequalities that can be seen to hold: every term of the difference is at least zero.

Nothing is searched, so a module's thousands of questions cost microseconds each.  Where terms alone do not
show it, quotients are replaced by the bounds that rounding leaves them; a difference of sizes is a multiple
of what divides all its coefficients, so that more than that below zero is below zero.  What cannot be seen
goes to the prover.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd, inf, lcm

from symalloc.prover.domain import Domain
from symalloc.size.choice import Max
from symalloc.size.expr import Expr, FloorDiv, Mod, Monomial
from symalloc.size.sign import Signs

MOST_ALTERNATIVES = 256
MOST_NESTED = 3  # quotients within each other that are replaced by their bounds


class SyntacticOrder:
    """Remembers which atoms are never negative over the bounds of `domain`; its assumptions are not used.

    `compared` counts the differences that were looked at closely; beyond `most` of them only terms are.
    """

    __slots__ = ("_domain", "_most", "compared", "signs")

    def __init__(self, domain: Domain, most: float = inf) -> None:
        self._domain, self._most = domain, most
        self.compared = 0
        self.signs = Signs(lambda name: domain.lower_of(name) >= 0)

    def at_most(self, low: Expr, high: Expr) -> bool:
        """Return whether `low <= high` is seen to hold at every point; False says nothing."""
        if self._terms_at_most(low.terms, high.terms):
            return True
        if self.compared > self._most:
            return False
        nodes, _, known = _expanded(high)
        if any(self._terms_at_most(low.terms, node.terms) for node in nodes[1:]):
            return True
        parts, simplest_first = candidates(low), nodes[::-1]
        if all(part in known or self._below(part, simplest_first) for part in parts):
            return True
        return len(parts) > 1 and any(self._roughly_at_most(low, node) for node in simplest_first)

    def _below(self, low: Expr, nodes: Sequence[Expr]) -> bool:
        """Return whether one of `nodes` is seen to be at least `low`."""
        if any(self._terms_at_most(low.terms, node.terms) for node in nodes):
            return True
        return any(self._roughly_at_most(low, node) for node in nodes)

    def _terms_at_most(self, low: Mapping[Monomial, int], high: Mapping[Monomial, int]) -> bool:
        """Return whether each term of `high - low` is >= 0."""
        seen = self.signs.monomial
        for monomial, coefficient in low.items():
            rest = high.get(monomial, 0) - coefficient
            if rest < 0 or (rest and not seen(monomial)):
                return False
        for monomial, coefficient in high.items():
            if monomial not in low and (coefficient < 0 or not seen(monomial)):
                return False
        return True

    def _roughly_at_most(self, low: Expr, high: Expr) -> bool:
        """The same once quotients in the difference are replaced by the bounds that rounding leaves them."""
        self.compared += 1
        if self.compared > self._most:
            return False
        difference = high - low
        grain = gcd(*difference.terms.values()) or 1
        least, scale = _without_quotients(difference)
        return self.signs.expr(least + (scale * grain - 1))


def alternatives(expr: Expr) -> tuple[Expr, ...]:
    """Expressions whose maximum is `expr`: its other terms are added to each operand of a maximum in it."""
    return _expanded(expr)[1]


def _without_quotients(expr: Expr) -> tuple[Expr, int]:
    """`(p, d)` with p <= d * expr, where each `a // c` that is subtracted became its bound a / c, and each
    that is added its bound (a - c + 1) / c.
    """
    scale = 1
    for _ in range(MOST_NESTED):
        quotients = {m: q for m in expr.terms if (q := _quotient(m))}
        if not quotients:
            break
        step = lcm(*(divisor for _, divisor in quotients.values()))
        total: dict[Monomial, int] = {}
        for monomial, coefficient in expr.terms.items():
            above, divisor = quotients.get(monomial, (None, 1))
            share = coefficient * (step // divisor)
            terms = {monomial: 1} if above is None else above.terms
            for key, value in terms.items():
                total[key] = total.get(key, 0) + share * value
            if above is not None and share > 0:
                total[()] = total.get((), 0) - share * (divisor - 1)
        scale *= step
        expr = Expr({m: c for m, c in total.items() if c})
    return expr, scale


def _quotient(monomial: Monomial) -> tuple[Expr, int] | None:
    """The numerator and the divisor, where a monomial is a quotient by a positive constant."""
    if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(monomial[0][0], FloorDiv):
        return None
    divisor = monomial[0][0].denominator.as_constant or 0
    return (monomial[0][0].numerator, divisor) if divisor > 0 else None


@lru_cache(maxsize=8192)
def _expanded(expr: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...], frozenset[Expr]]:
    """`expr` with the expressions that its maxima lead to, none of which exceeds it; the last of them; and
    all of them as a set.
    """
    if expr.is_polynomial:
        return (expr,), (expr,), frozenset((expr,))
    nodes, last = [expr], []
    for node in nodes:  # which grows as it is walked
        found = _spread(node) if len(nodes) <= MOST_ALTERNATIVES else ()
        nodes += found
        if not found:
            last.append(node)
    return tuple(nodes), tuple(last), frozenset(nodes)


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

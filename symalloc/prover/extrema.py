"""Layer `operands`: a maximum is at most something where each operand is, and at least where one is.

What is left to show then has fewer quotients and no cases, which is what the other layers are good at.
"""

from __future__ import annotations

from symalloc.prover.bounds import Box, interval
from symalloc.prover.budget import Budget, Meter
from symalloc.prover.normalize import NormalizedDomain
from symalloc.prover.refute import refute
from symalloc.size.choice import Max, Min
from symalloc.size.condition import Condition, Relation, ge
from symalloc.size.expr import Expr, FloorDiv, Monomial

MOST = 16  # expressions that one relation is taken apart into
MOST_CONDITIONS = 4_000  # in the cases of all attempts together; one alone has the cases of its budget


def holds_by_operands(claim: Condition, domain: NormalizedDomain, budget: Budget) -> bool:
    """True if `claim`, relations `<=` over `domain`, is shown to hold throughout; False says nothing.

    Every divisor in it must be at least 1 at each point of the domain.
    """
    together = Meter(MOST_CONDITIONS)
    return all(_shown(part, domain, budget, together) for part in claim.conjuncts)


def _shown(part: Condition, domain: NormalizedDomain, budget: Budget, together: Meter) -> bool:
    if not isinstance(part, Relation) or part.operator != "<=":
        return False
    for wanted in _taken_apart(part.expr, highest=True):
        offers = (b for e in _taken_apart(wanted, highest=False) for b in (e, _rounded_away(e, domain.box)))
        asked = (b for b in offers if b is not None and b is not part.expr)
        if not any(_at_most_zero(bound, domain, budget, together) for bound in asked):
            return False
    return True


def _taken_apart(expr: Expr, *, highest: bool) -> list[Expr]:
    """Expressions of which `expr` is the largest (`highest`) or the least, or fewer, as many as are allowed:
    `expr` with operands in place of its extrema of that kind.
    """
    found = [expr]
    while len(found) < MOST:
        index, parts = next(((i, p) for i, e in enumerate(found) if (p := _spread(e, highest))), (0, []))
        if not parts:
            break
        found[index : index + 1] = parts
    return found


def _spread(expr: Expr, highest: bool) -> list[Expr]:
    for monomial, coefficient in expr.terms.items():
        atom = monomial[0][0] if len(monomial) == 1 and monomial[0][1] == 1 else None
        if isinstance(atom, Max | Min) and highest is (isinstance(atom, Max) is (coefficient > 0)):
            rest = expr - Expr({monomial: coefficient})
            return [rest + coefficient * operand for operand in atom.operands]
    return []


def _at_most_zero(expr: Expr, domain: NormalizedDomain, budget: Budget, together: Meter) -> bool:
    """True if no point of the domain has `expr >= 1`."""
    if any(expr.evaluate(point) > 0 for point in domain.points):
        return False
    above = domain.reduce(ge(expr, 1))
    return refute((*domain.facts, above), domain.box, budget, together) is not None


def _rounded_away(expr: Expr, box: Box) -> Expr | None:
    """An upper bound of a multiple of `expr`, with bounds in place of quotients; None where there is none.

    a // d lies between (a - d + 1) / d and a / d; so it does when multiplied by what is never negative.
    """
    changed = expr
    for _ in range(MOST):
        found = _quotient(changed, box)
        if found is None:
            break
        monomial, atom, divisor = found
        coefficient = changed.terms[monomial]
        above = atom.numerator if coefficient > 0 else atom.numerator - (divisor - 1)
        others = Expr({tuple(factor for factor in monomial if factor[0] != atom): coefficient})
        changed = divisor * (changed - Expr({monomial: coefficient})) + others * above
    return None if changed is expr else changed


def _quotient(expr: Expr, box: Box) -> tuple[Monomial, FloorDiv, int] | None:
    """A term of `expr` with a quotient whose other factors are never negative, and that quotient."""
    for monomial in expr.terms:
        for atom, power in monomial:
            divisor = (atom.denominator.as_constant or 0) if isinstance(atom, FloorDiv) else 0
            if isinstance(atom, FloorDiv) and divisor > 0 and power == 1:
                others = (Expr({((a, 1),): 1}) for a, p in monomial if a != atom and p % 2)
                if all(interval(other, box)[0] >= 0 for other in others):
                    return monomial, atom, divisor
    return None

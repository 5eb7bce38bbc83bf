"""Definedness: where every divisor is at least 1.

Floor division and remainder carry that obligation.  `holds` and `fails` write a condition and its negation
so that each relation stands behind the obligations of its own divisors: both are false or true for a reason
at every point, and neither is ever evaluated at a divisor below 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from symalloc.size.choice import Select
from symalloc.size.condition import (
    TRUE,
    And,
    Condition,
    Junction,
    Relation,
    conjunction,
    disjunction,
    ge,
    negate,
)
from symalloc.size.expr import Expr

IsPositive = Callable[[Expr], bool]


def holds(condition: Condition, positive: IsPositive) -> Condition:
    """`condition`, and that it is defined; `positive(divisor)` tells the divisors known to be at least 1."""
    if all(map(positive, condition.divisors)):
        return condition
    if isinstance(condition, Relation):
        return conjunction((defined(condition.expr, positive), condition))
    assert isinstance(condition, Junction)
    return condition.connect(lambda operand: holds(operand, positive))


def fails(condition: Condition, positive: IsPositive) -> Condition:
    """The negation of `holds(condition)`."""
    if all(map(positive, condition.divisors)):
        return negate(condition)
    if isinstance(condition, Relation):
        usable = defined(condition.expr, positive)
        return disjunction((fails(usable, positive), conjunction((usable, negate(condition)))))
    assert isinstance(condition, Junction)
    join = disjunction if isinstance(condition, And) else conjunction
    return join(fails(c, positive) for c in condition.operands)


def defined(expr: Expr, positive: IsPositive) -> Condition:
    """That every divisor in `expr` which is evaluated is at least 1, inner ones first."""
    if all(map(positive, expr.divisors)):
        return TRUE
    parts: list[Condition] = []
    for atom in sorted(expr.atoms):
        if isinstance(atom, Select):
            cases = ((holds(test, positive), defined(value, positive)) for test, value in atom.cases)
            parts.append(disjunction(map(conjunction, cases)))
            continue
        parts += (defined(operand, positive) for operand in atom.operands)
        if atom.divisor is not None and not positive(atom.divisor):
            parts.append(ge(atom.divisor, 1))
    return conjunction(parts)


def evaluated_divisors(sizes: Iterable[Expr]) -> tuple[Expr, ...]:
    """The divisors that are no positive constants, in a fixed order.

    Those that stand in an if-then-else are left out: they may never be evaluated.
    """
    pending = [size for size in sizes if size.divisors]
    found: dict[Expr, None] = {}
    while pending:
        for atom in pending.pop().atoms:
            if atom.divisor is not None and (atom.divisor.as_constant or 0) < 1:
                found[atom.divisor] = None
            pending += () if isinstance(atom, Select) else atom.operands
    return tuple(sorted(found, key=lambda divisor: divisor.key))

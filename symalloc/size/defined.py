"""Where a condition is defined: every divisor at least 1.

Floor division and remainder carry that obligation.  `holds` and `fails` write a condition and its negation
so that each relation stands behind the obligations of its own divisors: both are false or true for a reason
at every point, and neither is ever evaluated at a divisor below 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from symalloc.size.atoms import FloorDiv, Max, Min, Mod, Select, Symbol
from symalloc.size.condition import (
    FALSE,
    TRUE,
    And,
    Condition,
    Or,
    Relation,
    conjunction,
    disjunction,
    ge,
    le,
    negate,
)
from symalloc.size.expr import Expr

__all__ = ["defined", "divisors", "fails", "holds"]

IsPositive = Callable[[Expr], bool]


def divisors(subject: Expr | Condition) -> frozenset[Expr]:
    """The divisors at every depth that are not positive constants."""
    if isinstance(subject, Expr):
        return _expr_divisors(subject)
    if isinstance(subject, Relation):
        return _expr_divisors(subject.expr)
    assert isinstance(subject, And | Or)
    return frozenset().union(*map(divisors, subject.operands))


def holds(condition: Condition, positive: IsPositive) -> Condition:
    """`condition`, and that it is defined; `positive(divisor)` tells the divisors known to be at least 1."""
    if not _open(condition, positive):
        return condition
    match condition:
        case Relation(expr=expr):
            return conjunction((defined(expr, positive), condition))
        case And(operands=operands):
            return conjunction(holds(c, positive) for c in operands)
        case Or(operands=operands):
            return disjunction(holds(c, positive) for c in operands)
    raise TypeError(f"not a condition: {condition!r}")


def fails(condition: Condition, positive: IsPositive) -> Condition:
    """The negation of `holds(condition)`."""
    if not _open(condition, positive):
        return negate(condition)
    match condition:
        case Relation(expr=expr):
            usable = defined(expr, positive)
            return disjunction((_undefined(expr, positive), conjunction((usable, negate(condition)))))
        case And(operands=operands):
            return disjunction(fails(c, positive) for c in operands)
        case Or(operands=operands):
            return conjunction(fails(c, positive) for c in operands)
    raise TypeError(f"not a condition: {condition!r}")


def defined(expr: Expr, positive: IsPositive) -> Condition:
    """That every divisor in `expr` which is evaluated is at least 1, inner ones first."""
    if all(map(positive, divisors(expr))):
        return TRUE
    parts: list[Condition] = []
    for atom in sorted(expr.atoms):
        match atom:
            case Symbol():
                pass
            case FloorDiv(denominator=below) | Mod(denominator=below):
                parts += (defined(atom.numerator, positive), defined(below, positive))
                parts.append(TRUE if positive(below) else ge(below, 1))
            case Min(operands=operands) | Max(operands=operands):
                parts += (defined(e, positive) for e in operands)
            case Select(condition=test, then=then, otherwise=otherwise):
                taken = conjunction((holds(test, positive), defined(then, positive)))
                parts.append(
                    disjunction((taken, conjunction((_denied(test, positive), defined(otherwise, positive)))))
                )
    return conjunction(parts)


def _denied(test: Condition, positive: IsPositive) -> Condition:
    """`test` is defined and false."""
    match test:
        case Relation(expr=expr):
            return conjunction((defined(expr, positive), negate(test)))
        case And(operands=operands):
            return disjunction(_denied(c, positive) for c in operands)
        case Or(operands=operands):
            return conjunction(_denied(c, positive) for c in operands)
    raise TypeError(f"not a condition: {test!r}")


def _undefined(expr: Expr, positive: IsPositive) -> Condition:
    parts: list[Condition] = []
    for atom in sorted(expr.atoms):
        match atom:
            case Symbol():
                pass
            case FloorDiv(denominator=below) | Mod(denominator=below):
                parts += (_undefined(atom.numerator, positive), _undefined(below, positive))
                parts.append(
                    FALSE if positive(below) else conjunction((defined(below, positive), le(below, 0)))
                )
            case Min(operands=operands) | Max(operands=operands):
                parts += (_undefined(e, positive) for e in operands)
            case Select():
                parts.append(_no_branch(atom, positive))
    return disjunction(parts)


def _no_branch(atom: Select, positive: IsPositive) -> Condition:
    """That neither branch of `atom` is both taken and defined."""
    test = atom.condition
    not_then = disjunction((fails(test, positive), _undefined(atom.then, positive)))
    not_otherwise = disjunction((_not_denied(test, positive), _undefined(atom.otherwise, positive)))
    return conjunction((not_then, not_otherwise))


def _not_denied(test: Condition, positive: IsPositive) -> Condition:
    match test:
        case Relation(expr=expr):
            return disjunction((_undefined(expr, positive), holds(test, positive)))
        case And(operands=operands):
            return conjunction(_not_denied(c, positive) for c in operands)
        case Or(operands=operands):
            return disjunction(_not_denied(c, positive) for c in operands)
    raise TypeError(f"not a condition: {test!r}")


def _open(condition: Condition, positive: IsPositive) -> bool:
    return not all(map(positive, divisors(condition)))


def _expr_divisors(expr: Expr) -> frozenset[Expr]:
    found = expr.__dict__.get("divisors")
    if found is None:
        found = expr.__dict__["divisors"] = frozenset(_below(expr.atoms))
    return found


def _below(atoms: Iterable[object]) -> Iterable[Expr]:
    for atom in atoms:
        match atom:
            case FloorDiv(numerator=above, denominator=below) | Mod(numerator=above, denominator=below):
                value = below.as_constant
                if value is None or value < 1:
                    yield below
                    yield from _expr_divisors(below)
                yield from _expr_divisors(above)
            case Min(operands=operands) | Max(operands=operands):
                for operand in operands:
                    yield from _expr_divisors(operand)
            case Select(condition=test, then=then, otherwise=otherwise):
                yield from divisors(test)
                yield from _expr_divisors(then)
                yield from _expr_divisors(otherwise)

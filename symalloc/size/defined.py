"""Definedness: where every divisor is at least 1.

Floor division and remainder carry that obligation.  `holds` and `fails` write a condition and its negation
so that each relation stands behind the obligations of its own divisors: both are false or true for a reason
at every point, and neither is ever evaluated at a divisor below 1.

`0 * (n // k)`, `n // k - n // k` and `a if n // k == 0 else a` have values that do not depend on `k`, and yet
whoever computes them divides by `k`.  The reader of a condition adds the obligations of what it has read and
arithmetic has cancelled (`symalloc.size.parse`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from symalloc.size.choice import Select, select
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
from symalloc.size.expr import ONE, Atom, Expr

IsPositive = Callable[[Expr], bool]


def holds(condition: Condition, positive: IsPositive) -> Condition:
    """`condition`, and that it is defined; `positive(divisor)` tells the divisors known to be at least 1."""
    if not condition.divisors:
        return condition
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
            test, then, otherwise = atom.condition, atom.then, atom.otherwise
            taken = conjunction((holds(test, positive), defined(then, positive)))
            passed = conjunction((fails(test, positive), defined(otherwise, positive)))
            tests = (
                (defined(e, positive) for e in test.exprs) if atom.whole else (_decidable(test, positive),)
            )
            parts += (*tests, disjunction((taken, passed)))
            continue
        parts += (defined(operand, positive) for operand in atom.operands)
        if atom.divisor is not None and not positive(atom.divisor):
            parts.append(ge(atom.divisor, 1))
    return conjunction(parts)


def _decidable(test: Condition, positive: IsPositive) -> Condition:
    """That `test` comes to a value, read from the left until a relation decides it."""
    if all(map(positive, test.divisors)):
        return TRUE
    if isinstance(test, Relation):
        return defined(test.expr, positive)
    assert isinstance(test, Junction)
    found = TRUE
    for operand in reversed(test.operands):
        decides = fails(operand, positive) if isinstance(test, And) else holds(operand, positive)
        found = conjunction((_decidable(operand, positive), disjunction((decides, found))))
    return found


def evaluated_divisors(sizes: Iterable[Expr]) -> tuple[Expr, ...]:
    """The divisors that must be at least 1 for `sizes` to be defined, constants aside, in a fixed order.

    A divisor in one branch alone of an if-then-else is 1 in the other: `d if test else 1`.
    """
    found = frozenset().union(*map(_divisors, sizes))
    return tuple(sorted((d for d in found if not _follows(d, found)), key=lambda divisor: divisor.key))


def _follows(divisor: Expr, others: frozenset[Expr]) -> bool:
    """True if `divisor` is 1 or one of `others`."""
    atom = divisor.as_atom
    return isinstance(atom, Select) and {atom.then, atom.otherwise} <= {ONE, *others}


def _divisors(expr: Expr) -> frozenset[Expr]:
    if not expr.divisors:
        return frozenset()
    found: set[Expr] = set()
    for atom in expr.atoms:
        if isinstance(atom, Select):
            then, otherwise = _divisors(atom.then), _divisors(atom.otherwise)
            found |= then & otherwise
            for test, only in (
                (atom.condition, then - otherwise),
                (negate(atom.condition), otherwise - then),
            ):
                found.update(select(test, d, ONE) for d in only if ge(d, 1) not in test.conjuncts)
            found.update(*map(_divisors, atom.tested))
            continue
        if atom.divisor is not None and (atom.divisor.as_constant or 0) < 1:
            found.add(atom.divisor)
        found.update(*map(_divisors, atom.operands))
    return frozenset(found)


def evaluated_atoms(expr: Expr) -> Iterator[Atom]:
    """The atoms that are evaluated wherever `expr` is, outer ones first."""
    pending = [expr]
    while pending:
        for atom in pending.pop().atoms:
            yield atom
            pending += atom.tested if isinstance(atom, Select) else atom.operands


def with_inner(exprs: Iterable[Expr]) -> list[Expr]:
    """`exprs` and the expressions inside their atoms, at every depth, each once."""
    pending = list(dict.fromkeys(exprs))
    found = set(pending)
    for expr in pending:  # which grows as it is walked
        fresh = dict.fromkeys(e for atom in expr.atoms for e in atom.operands if e not in found)
        found.update(fresh)
        pending += fresh
    return pending

"""Rewriting a condition into one that a person reads at a glance.

Each rule keeps the meaning over the box: a positive factor is divided out, `max(a, b) <= c` becomes two
bounds, `t // d <= k` a bound on t, and `(n // 4) * 4 == n` becomes `n % 4 == 0`.
"""

from __future__ import annotations

from collections.abc import Callable

from symalloc.prover.bounds import Box, interval
from symalloc.size.choice import Max, Min
from symalloc.size.condition import (
    Condition,
    Junction,
    Relation,
    conjunction,
    disjunction,
    eq,
    ge,
    le,
    relation,
)
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Symbol, symbol

MAX_ROUNDS = 6


def simplify(condition: Condition, box: Box) -> Condition:
    """An equivalent of `condition` over `box`, simpler where a rule applies."""
    if isinstance(condition, Relation):
        return _rounds(condition, box, MAX_ROUNDS)
    assert isinstance(condition, Junction)
    return condition.connect(lambda operand: simplify(operand, box))


def _rounds(condition: Relation, box: Box, left: int) -> Condition:
    for rule in _RULES:
        changed = rule(condition, box)
        if changed is None or changed == condition:
            continue
        if isinstance(changed, Relation):
            return _rounds(changed, box, left - 1) if left else changed
        return simplify(changed, box) if left else changed
    return condition


def _divide_factor(subject: Relation, box: Box) -> Condition | None:
    """Divide by a symbol that every term has; one that may be zero is kept as an alternative."""
    for atom in sorted(subject.expr.atoms):
        quotient = subject.expr.over(((atom, 1),))
        if quotient is None or not isinstance(atom, Symbol) or box.lower[atom.name] < 0:
            continue
        divided = relation(subject.operator, quotient)
        if box.lower[atom.name] >= 1:
            return divided
        zero = eq(symbol(atom.name), 0)
        if subject.operator != "!=":
            return disjunction((divided, zero))
        return conjunction((divided, ge(symbol(atom.name), 1)))
    return None


def _open_extremum(subject: Relation, _box: Box) -> Condition | None:
    """`max(a, b) + r <= 0` is `a + r <= 0 and b + r <= 0`; with min, or a negative sign, an alternative."""
    if subject.operator != "<=":
        return None
    found = _linear_atom(subject.expr, Min, Max)
    if found is None:
        return None
    atom, coefficient, rest = found
    assert isinstance(atom, Min | Max)
    parts = [le(coefficient * operand + rest, 0) for operand in atom.operands]
    every = isinstance(atom, Max) is (coefficient > 0)
    return conjunction(parts) if every else disjunction(parts)


def _invert_quotient(subject: Relation, box: Box) -> Condition | None:
    """`t // d <= k` is `t <= d*k + d - 1`, and `t // d >= k` is `t >= d*k`."""
    if subject.operator != "<=":
        return None
    found = _linear_atom(subject.expr, FloorDiv)
    if found is None:
        return None
    atom, coefficient, rest = found
    assert isinstance(atom, FloorDiv)
    below, constant = atom.denominator, rest.as_constant
    if interval(below, box)[0] < 1 or (constant is None and abs(coefficient) != 1):
        return None
    if coefficient > 0:
        bound = -rest if constant is None else Expr({(): -constant // coefficient})
        return le(atom.numerator, below * bound + below - 1)
    bound = rest if constant is None else Expr({(): -(-constant // -coefficient)})
    return ge(atom.numerator, below * bound)


def _quotient_to_remainder(subject: Relation, _box: Box) -> Condition | None:
    """`c*d*(t // d)` is `c*(t - t % d)`; taken where that cancels terms."""
    found = _linear_atom(subject.expr, FloorDiv)
    if found is None:
        return None
    atom, coefficient, rest = found
    assert isinstance(atom, FloorDiv)
    step = atom.denominator.as_constant
    if step is None or step < 1 or coefficient % step:
        return None
    remainder = Expr({((Mod(atom.numerator, atom.denominator), 1),): 1})
    changed = coefficient // step * (atom.numerator - remainder) + rest
    return relation(subject.operator, changed) if len(changed.terms) < len(subject.expr.terms) else None


def _linear_atom(expr: Expr, *kinds: type) -> tuple[Atom, int, Expr] | None:
    """`(atom, coefficient, rest)` for the one term that is a number times an atom of `kinds`, none in the
    rest.
    """
    hits = [(m, c) for m, c in expr.terms.items() if any(isinstance(a, kinds) for a, _ in m)]
    if len(hits) != 1:
        return None
    monomial, coefficient = hits[0]
    if len(monomial) != 1 or monomial[0][1] != 1:
        return None
    rest = Expr({m: c for m, c in expr.terms.items() if m != monomial})
    return monomial[0][0], coefficient, rest


_RULES: tuple[Callable[[Relation, Box], Condition | None], ...] = (
    _divide_factor,
    _open_extremum,
    _quotient_to_remainder,
    _invert_quotient,
)

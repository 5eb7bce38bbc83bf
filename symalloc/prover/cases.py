"""Layer `cases`: conditions written out case by case: a choice (`min`, `max`, `a if c else b`) becomes its
alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm

from symalloc.size.choice import Choice
from symalloc.size.condition import Condition, Junction, Relation, conjunction, disjunction
from symalloc.size.expr import Atom, Division, Expr

MAX_SPLIT = 60_000
"""The characters of canonical form that splitting one condition may write before it gives up."""


def split_extrema(condition: Condition, *, limit: int) -> Condition:
    """An equivalent without choices where at most `limit` splits do it; otherwise with some left.

    Each split writes every relation once for each case of its first choice; a condition that gets too long
    so is given up.
    """
    written = 0
    for _ in range(limit):
        firsts = [(relation, first_choice(relation)) for relation in condition.relations]
        if all(first is None for _, first in firsts):
            break
        written += sum(len(one.key) * (1 if first is None else len(first.cases)) for one, first in firsts)
        if written > MAX_SPLIT:
            break
        condition = _split_first(condition)
    return condition


def first_choice(subject: Condition | Expr) -> Choice | None:
    """An innermost `min`, `max` or `select` in `subject`: its operands hold none."""
    if isinstance(subject, Condition):
        return next((found for e in subject.exprs if (found := first_choice(e)) is not None), None)
    if subject.is_polynomial:
        return None
    for atom in sorted(subject.atoms):
        found = next((inner for e in atom.operands if (inner := first_choice(e)) is not None), None)
        if found is None and isinstance(atom, Choice):
            found = atom
        if found is not None:
            return found
    return None


def replace(condition: Condition, old: Atom, new: Expr) -> Condition:
    """`condition` with the atom `old` replaced at every depth."""
    return condition.rewrite(lambda atom: new if atom == old else None)


def _split_first(condition: Condition) -> Condition:
    if isinstance(condition, Relation):
        found = first_choice(condition)
        if found is None:
            return condition
        cases = ((test, replace(condition, found, value)) for test, value in found.cases)
        return disjunction(map(conjunction, cases))
    assert isinstance(condition, Junction)
    return condition.connect(_split_first)


def periods(conditions: Iterable[Condition]) -> dict[str, int]:
    """A period of the quotients and remainders by constants in `conditions`, for each symbol in them."""
    found: dict[str, int] = {}
    for condition in conditions:
        for expr in condition.exprs:
            _collect(expr, 1, found)
    return found


def _collect(expr: Expr, outer: int, found: dict[str, int]) -> None:
    """Multiply up nested constant divisors; every symbol below gets a multiple of their product."""
    for atom in expr.atoms:
        if not isinstance(atom, Division):
            for operand in atom.operands:
                _collect(operand, outer, found)
            continue
        step = outer * (atom.denominator.as_constant or 1)
        for name in atom.numerator.symbols if step > 1 else ():
            found[name] = lcm(found.get(name, 1), step)
        _collect(atom.numerator, step, found)
        _collect(atom.denominator, outer, found)

"""Layer `cases`: `min`, `max` and `a if c else b` written out as a choice between plain expressions."""

from __future__ import annotations

from symalloc.size.choice import Choice
from symalloc.size.condition import Condition, Junction, Relation, conjunction, disjunction
from symalloc.size.expr import Atom, Expr


def split_extrema(condition: Condition, *, limit: int) -> Condition:
    """An equivalent without choices where at most `limit` splits do it; otherwise with some left."""
    for _ in range(limit):
        if first_choice(condition) is None:
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

"""Layer `cases`: `min`, `max` and `a if c else b` written out as a choice between plain expressions."""

from __future__ import annotations

from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Select
from symalloc.size.condition import And, Condition, Or, Relation, conjunction, disjunction, ge, le, negate
from symalloc.size.expr import Expr
from symalloc.size.rewrite import rewrite_condition

__all__ = ["Choice", "choices", "first_choice", "replace", "split_extrema"]

Choice = Min | Max | Select


def split_extrema(condition: Condition, *, limit: int) -> Condition:
    """An equivalent without choices where at most `limit` splits do it; otherwise with some left."""
    for _ in range(limit):
        changed = _split_first(condition)
        if changed is condition:
            return condition
        condition = changed
    return condition


def choices(atom: Choice) -> list[tuple[Condition, Expr]]:
    """The cases of `atom`: a condition and the value it has there; together they cover every point."""
    if isinstance(atom, Select):
        return [(atom.condition, atom.then), (negate(atom.condition), atom.otherwise)]
    build = le if isinstance(atom, Min) else ge
    return [
        (conjunction(build(chosen, other) for other in atom.operands if other is not chosen), chosen)
        for chosen in atom.operands
    ]


def first_choice(condition: Condition) -> Choice | None:
    """An innermost `min`, `max` or `select` in `condition`: its operands hold none."""
    match condition:
        case Relation(expr=expr):
            return _choice_in(expr)
        case And(operands=operands) | Or(operands=operands):
            return next((found for c in operands if (found := first_choice(c)) is not None), None)
    return None


def replace(condition: Condition, old: Atom, new: Expr) -> Condition:
    """`condition` with the atom `old` replaced at every depth."""
    return rewrite_condition(condition, lambda atom: new if atom == old else None)


def _split_first(condition: Condition) -> Condition:
    match condition:
        case Relation():
            found = first_choice(condition)
            if found is None:
                return condition
            cases = choices(found)
            return disjunction(conjunction((test, replace(condition, found, value))) for test, value in cases)
        case And(operands=operands) | Or(operands=operands):
            parts = [_split_first(c) for c in operands]
            if all(new is old for new, old in zip(parts, operands, strict=True)):
                return condition
            return conjunction(parts) if isinstance(condition, And) else disjunction(parts)
    return condition


def _choice_in(expr: Expr) -> Choice | None:
    if expr.is_polynomial:
        return None
    for atom in sorted(expr.atoms):
        match atom:
            case FloorDiv(numerator=above, denominator=below) | Mod(numerator=above, denominator=below):
                found = _choice_in(above) or _choice_in(below)
            case Min(operands=operands) | Max(operands=operands):
                found = next((inner for e in operands if (inner := _choice_in(e)) is not None), atom)
            case Select(condition=test, then=then, otherwise=otherwise):
                found = first_choice(test) or _choice_in(then) or _choice_in(otherwise) or atom
            case _:
                found = None
        if found is not None:
            return found
    return None

"""Rebuilding expressions and conditions from the inside out with some atoms replaced."""

from __future__ import annotations

from collections.abc import Callable

from symalloc.size.condition import And, Condition, Or, Relation, conjunction, disjunction, relation
from symalloc.size.expr import (
    Atom,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Select,
    Symbol,
    floordiv,
    maximum,
    minimum,
    mod,
    select,
)

__all__ = ["Change", "rewrite", "rewrite_condition"]

Change = Callable[[Atom], Expr | None]


def rewrite(expr: Expr, change: Change) -> Expr:
    """`expr` with each atom replaced by `change(atom)`, operands first; None keeps the atom."""
    if expr.is_polynomial and not any(change(atom) for atom in expr.atoms):
        return expr
    return expr.map_atoms(lambda atom: _rewrite_atom(atom, change))


def rewrite_condition(condition: Condition, change: Change) -> Condition:
    """`condition` with every expression in it rewritten."""
    match condition:
        case Relation(operator=operator, expr=expr):
            changed = rewrite(expr, change)
            return condition if changed is expr else relation(operator, changed)
        case And(operands=operands):
            return conjunction(rewrite_condition(c, change) for c in operands)
        case Or(operands=operands):
            return disjunction(rewrite_condition(c, change) for c in operands)
    raise TypeError(f"not a condition: {condition!r}")


def _rewrite_atom(atom: Atom, change: Change) -> Expr:
    if isinstance(atom, Symbol):
        return change(atom) or _alone(atom)
    rebuilt = _rebuild(atom, change)
    only = rebuilt.as_atom
    if only is None or isinstance(only, Symbol):
        return rebuilt
    return change(only) or rebuilt


def _rebuild(atom: FloorDiv | Mod | Min | Max | Select, change: Change) -> Expr:
    match atom:
        case FloorDiv(numerator=above, denominator=below):
            return floordiv(rewrite(above, change), rewrite(below, change))
        case Mod(numerator=above, denominator=below):
            return mod(rewrite(above, change), rewrite(below, change))
        case Min(operands=operands):
            return minimum(*(rewrite(e, change) for e in operands))
        case Max(operands=operands):
            return maximum(*(rewrite(e, change) for e in operands))
        case Select(condition=test, then=then, otherwise=otherwise):
            return select(rewrite_condition(test, change), rewrite(then, change), rewrite(otherwise, change))


def _alone(atom: Atom) -> Expr:
    return Expr({((atom, 1),): 1})

"""Rebuilding expressions and conditions from the inside out with some atoms replaced."""

from __future__ import annotations

from collections.abc import Callable

from symalloc.size.atoms import Atom, Symbol
from symalloc.size.condition import And, Condition, Or, Relation, conjunction, disjunction, relation
from symalloc.size.expr import Expr
from symalloc.size.operations import rebuild

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


def _rewrite_atom(atom: Atom, change: Change) -> Expr | None:
    if isinstance(atom, Symbol):
        return change(atom)
    rebuilt = rebuild(atom, lambda e: rewrite(e, change), lambda c: rewrite_condition(c, change))
    only = rebuilt.as_atom
    if only is None or isinstance(only, Symbol):
        return rebuilt
    return change(only) or rebuilt

"""Bounds that are plain from the form of an expression: what reshapes, fused loops and their guards compute.

Divisors are taken to be at least 1: a kernel stops at a division by 0 before it uses the result.
"""

from __future__ import annotations

from collections.abc import Collection

from symalloc.size.condition import Condition, lt
from symalloc.size.expr import ZERO, Atom, Expr, FloorDiv, Mod, Symbol
from symalloc.size.sign import is_nonnegative

_DEEPEST = 8


def is_below(
    expr: Expr, end: Expr, facts: Collection[Condition], scalars: Collection[str], depth: int = 0
) -> bool:
    """Return whether `expr < end` plainly follows from `facts`."""
    below = lt(expr, end)
    if below.as_bool is not None:
        return below.as_bool
    if below in facts:
        return True
    if depth >= _DEEPEST:
        return False
    atom = expr.as_atom
    if isinstance(atom, Mod):
        return is_nonnegative(end - atom.denominator, scalars)
    if isinstance(atom, FloorDiv):
        return is_below(atom.numerator, end * atom.denominator, facts, scalars, depth + 1)
    rows = (a for a in expr.atoms if isinstance(a, FloorDiv | Symbol))
    return any(_is_below_in_rows(expr, row, end, facts, scalars, depth + 1) for row in rows)


def _is_below_in_rows(
    expr: Expr,
    atom: FloorDiv | Symbol,
    end: Expr,
    facts: Collection[Condition],
    scalars: Collection[str],
    depth: int,
) -> bool:
    """`row * width + column` is below `rows * width`, where the row and the column are below theirs."""
    width, column = _taken_out(expr, atom)
    if not is_nonnegative(width, scalars):
        return False
    rows = divided(end, width)
    row = Expr({((atom, 1),): 1})
    if rows is None or (isinstance(atom, Symbol) and lt(row, rows) not in facts):
        return False
    return is_below(column, width, facts, scalars, depth) and is_below(row, rows, facts, scalars, depth)


def _taken_out(expr: Expr, atom: Atom) -> tuple[Expr, Expr]:
    """The factor of `atom` in `expr`, and what is left; no factor where it stands in a power."""
    factor, rest = ZERO, ZERO
    for monomial, coefficient in expr.terms.items():
        if (atom, 1) in monomial:
            factor = factor + Expr({tuple(part for part in monomial if part[0] != atom): coefficient})
        else:
            rest = rest + Expr({monomial: coefficient})
    return factor, rest


def divided(expr: Expr, width: Expr) -> Expr | None:
    """`expr / width`; None where it does not come out even, or `width` is a sum."""
    if len(width.terms) != 1:
        return None
    ((monomial, coefficient),) = width.terms.items()
    found = expr.over(monomial)
    if found is None or any(c % coefficient for c in found.terms.values()):
        return None
    return Expr({m: c // coefficient for m, c in found.terms.items()})

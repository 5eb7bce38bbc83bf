"""What sizes are divided by, whatever the shapes are."""

from __future__ import annotations

from collections.abc import Iterable

from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod
from symalloc.size.defined import divisors
from symalloc.size.expr import Expr

__all__ = ["evaluated_divisors"]


def evaluated_divisors(sizes: Iterable[Expr]) -> tuple[Expr, ...]:
    """The divisors that are no positive constants, in a fixed order; without those that stand in an
    if-then-else, which may never be evaluated.
    """
    pending = [size for size in sizes if divisors(size)]
    found: dict[Expr, None] = {}
    while pending:
        for atom in pending.pop().atoms:
            pending += _operands(atom)
            if isinstance(atom, FloorDiv | Mod) and (atom.denominator.as_constant or 0) < 1:
                found[atom.denominator] = None
    return tuple(sorted(found, key=lambda divisor: divisor.key))


def _operands(atom: Atom) -> tuple[Expr, ...]:
    match atom:
        case FloorDiv(numerator=above, denominator=below) | Mod(numerator=above, denominator=below):
            return above, below
        case Min(operands=operands) | Max(operands=operands):
            return tuple(operands)
    return ()

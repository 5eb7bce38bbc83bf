"""The byte offsets that a tensor may carry along: where it begins behind the pointer that is handed over."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import Pointees, leaves_of, members
from symalloc.program.model import Operand
from symalloc.size.expr import Expr

__all__ = ["carried", "carried_by"]


def carried(points_to: PointsTo, operand: Operand) -> Iterator[Expr]:
    """The byte offsets of `operand`, of each of its fields, and of each branch that it may come from.

    None is left out but where it is not known: behind a packed function that returns its argument.
    """
    for cell in leaves_of(points_to.value_of(operand)):
        yield from carried_by(points_to, cell)


def carried_by(points_to: PointsTo, cell: Pointees) -> Iterator[Expr]:
    """The byte offsets of one tensor."""
    pending, seen = [cell], 0
    while pending:
        one = pending.pop()
        if one.offset is not None:
            yield one.offset
            continue
        choices = one.must & points_to.phis & ~seen
        seen |= choices
        for index in members(choices):
            pending.extend(points_to.regions[index].sources or ())

"""Tuples that a function only makes to take their fields out again."""

from __future__ import annotations

from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph


def taken_apart(cfg: ControlFlowGraph) -> frozenset[ir.Var]:
    """Return the tuples of variables, also within each other, of which nothing but fields is used.

    TVM kills no variable that nothing uses any more once it has replaced the fields by what they are: such a
    tuple would hold memory to the end of the call.
    """
    made = {one.var for _, one in cfg.of_type(ir.MakeTuple) if all(map(_plain, one.fields))}
    if not made:
        return frozenset()
    for _, one in cfg.instructions:
        if type(one) is ir.TakeField and one.source in made:
            made.add(one.var)
    for point in cfg.points:
        if type(point.instruction) is not ir.TakeField:
            made.difference_update(point.uses)
    return frozenset(made)


def _plain(item: ir.Operand) -> bool:
    """Return whether a field is a variable, or a tuple of such fields."""
    return type(item) is ir.Var or (type(item) is ir.TupleValue and all(map(_plain, item.items)))

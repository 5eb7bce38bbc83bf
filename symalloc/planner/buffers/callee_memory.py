"""The memory of callees.

A planned callee works in memory that its caller sets aside: one buffer of the caller for each arena that the
callee reserves at its entry, live at the call alone.
"""

from __future__ import annotations

from symalloc.analysis.argument_binding import bind_function
from symalloc.planner.memory_plan import Arena, Plan
from symalloc.program.model import CallFunction, Function
from symalloc.size.expr import Expr


def arenas_handed_down(plan: Plan) -> tuple[Arena, ...]:
    """The arenas of a callee that its caller may provide, in the order of `plan.arenas`."""
    return tuple(a for a in plan.arenas if a.defined_by is None and a.placements)


def sizes_at_call(callee: Function, plan: Plan, call: CallFunction) -> tuple[Expr, ...] | None:
    """The bytes of each of those arenas at `call`, in symbols of the caller; None where the arguments do not
    tell.
    """
    bound = bind_function(callee, call.arguments)
    sizes = [arena.size for arena in arenas_handed_down(plan)]
    if any(not size.symbols <= bound.keys() for size in sizes):
        return None
    return tuple(size.substitute(bound) for size in sizes)

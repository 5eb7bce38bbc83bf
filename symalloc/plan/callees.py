"""Functions that call each other: in which order they are planned, and the memory of callees.

A planned callee works in memory that its caller sets aside: one buffer of the caller for each arena that the
callee reserves at its entry, live at the call alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from symalloc.plan.model import Arena, Plan
from symalloc.program.call_graph import call_graph, callees_first, recursive
from symalloc.program.casts import extent_pairs
from symalloc.program.flow import Flow, flatten
from symalloc.program.model import CallFunction, Function, Program
from symalloc.program.operands import type_of
from symalloc.size.expr import Expr

__all__ = ["arenas_handed_down", "planning_order", "recursive_functions", "sizes_at_call"]


def planning_order(program: Program) -> tuple[str, ...]:
    """The functions of `program`, callees before callers; those that call each other in any order."""
    return callees_first(call_graph({name: flatten(f) for name, f in program.functions.items()}))


def recursive_functions(flows: Mapping[str, Flow]) -> frozenset[str]:
    """The functions that can be called while they are under way."""
    return recursive(call_graph(flows))


def arenas_handed_down(plan: Plan) -> tuple[Arena, ...]:
    """The arenas of a callee that its caller may provide, in the order of `plan.arenas`."""
    return tuple(a for a in plan.arenas if a.after is None and a.placements)


def sizes_at_call(callee: Function, plan: Plan, call: CallFunction) -> tuple[Expr, ...] | None:
    """The bytes of each of those arenas at `call`, in symbols of the caller; None where the arguments do not
    tell.
    """
    bound: dict[str, Expr] = {}
    for param, argument in zip(callee.params, call.arguments, strict=False):
        for actual, declared in extent_pairs(type_of(argument), param.type):
            if declared.as_symbol is not None:
                bound.setdefault(declared.as_symbol, actual)
    sizes = [arena.size for arena in arenas_handed_down(plan)]
    if any(not size.symbols <= bound.keys() for size in sizes):
        return None
    return tuple(size.substitute(bound) for size in sizes)

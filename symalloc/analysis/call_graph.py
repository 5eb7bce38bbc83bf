"""The call graph of a program, and the functions in it that come back to themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.operands import function_references, operands_of


def call_graph(graphs: Mapping[str, ControlFlowGraph]) -> dict[str, set[str]]:
    """For each function the functions of the program that it calls, or hands to something that may."""
    return {name: _called(cfg) & graphs.keys() for name, cfg in graphs.items()}


def callees_first(callees: Mapping[str, set[str]]) -> tuple[str, ...]:
    """The functions so ordered that callees stand before callers, but for recursion."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    for root in callees:
        stack = [(root, iter(sorted(callees[root])))] if root not in entered else []
        entered.add(root)
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n not in entered), None)
            if following is None:
                order[name] = None
                stack.pop()
            else:
                entered.add(following)
                stack.append((following, iter(sorted(callees[following]))))
    return tuple(order)


def recursive(callees: Mapping[str, set[str]]) -> frozenset[str]:
    """The functions that are called while they are themselves under way."""
    return frozenset(name for name in callees if name in _reached(callees, name))


def functions_as_values(graphs: Iterable[ControlFlowGraph]) -> set[str]:
    """The functions that are used other than by calling them: who calls these is not known."""
    found: set[str] = set()
    for point in (point for cfg in graphs for point in cfg.points):
        if point.instruction is not None:
            found.update(function_references(operands_of(point.instruction)))
        if point.operand is not None:
            found.update(function_references((point.operand,)))
    return found


def _reached(callees: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    pending = [start]
    while pending:
        fresh = callees[pending.pop()] - reached
        reached |= fresh
        pending.extend(fresh)
    return reached


def _called(cfg: ControlFlowGraph) -> set[str]:
    found: set[str] = set()
    found.update(call.name for _, call in cfg.of_type(ir.CallFunction))
    others: Sequence[tuple[int, ir.Instruction]] = cfg.of_type(ir.CallPacked, ir.NotUnderstood)
    for _, instruction in others:  # these may call what they are given
        found.update(function_references(operands_of(instruction)))
    return found

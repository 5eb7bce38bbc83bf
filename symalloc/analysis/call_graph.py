"""Which functions of a program call which, and which come back to themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.model import (
    CallFunction,
    CallPacked,
    FunctionRef,
    Instruction,
    NotUnderstood,
    TupleValue,
)
from symalloc.program.operands import operands_of

_CALLS = frozenset({CallFunction, CallPacked, NotUnderstood})  # the last two may call what they are given


def call_graph(flows: Mapping[str, ControlFlowGraph]) -> dict[str, set[str]]:
    """For each function the functions of the program that it calls, or hands to something that may."""
    return {name: _called(cfg) & flows.keys() for name, cfg in flows.items()}


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
    for step in cfg.points:
        if type(step.instruction) not in _CALLS:
            continue
        if isinstance(step.instruction, CallFunction):
            found.add(step.instruction.name)
        elif step.instruction is not None:
            found.update(_referred(step.instruction))
    return found


def _referred(instruction: Instruction) -> Iterator[str]:
    """The functions among the operands."""
    pending = list(operands_of(instruction))
    while pending:
        operand = pending.pop()
        if isinstance(operand, FunctionRef):
            yield operand.name
        elif isinstance(operand, TupleValue):
            pending.extend(operand.items)

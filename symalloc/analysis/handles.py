"""Variables as handles: which are killed, out of scope, never used.

A kill drops the handle that a variable holds; the memory goes with the last handle.  So what is asked
here is asked of variables, never of what they point to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from symalloc.program.control_flow import ControlFlowGraph, PointKind, ProgramPoint
from symalloc.program.model import Alias, Instruction, Kill, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """At `step` `var` is used or killed although `earlier` (a Kill, or what binds it) forbids it."""

    var: Var
    step: int
    earlier: Instruction | None
    kind: str


def uses_after_kill(cfg: ControlFlowGraph) -> Iterator[Fault]:
    """Uses (`use-after-kill`) and kills (`double-kill`) of variables that are killed on some path to them."""
    killed: dict[Var, Instruction] = {}
    stack: list[dict[Var, Instruction]] = []
    for index, step in enumerate(cfg.points):
        if killed and not killed.keys().isdisjoint(step.uses):
            yield from _faults(index, step, killed)
        if step.kind is PointKind.BRANCH:
            stack.append(dict(killed))
        elif step.kind is PointKind.ELSE:
            killed, stack[-1] = stack[-1], killed
        elif step.kind is PointKind.JOIN:
            killed = {**stack.pop(), **killed}
        elif isinstance(step.instruction, Kill) and isinstance(step.instruction.target, Var):
            killed.setdefault(step.instruction.target, step.instruction)


def _faults(index: int, step: ProgramPoint, killed: Mapping[Var, Instruction]) -> Iterator[Fault]:
    kind = "double-kill" if _is_kill(step) else "use-after-kill"
    for var in dict.fromkeys(step.uses):
        if var in killed:
            yield Fault(var=var, step=index, earlier=killed[var], kind=kind)


def out_of_scope(cfg: ControlFlowGraph) -> Iterator[Fault]:
    """The first use of each variable that stands where what binds it does not dominate."""
    visible: set[Var] = set(cfg.function.params)
    binders = {s.instruction.var: s.instruction for s in cfg.points if s.instruction is not None}
    stack: list[list[Var]] = [[]]
    reported: set[Var] = set()
    for index, step in enumerate(cfg.points):
        for var in step.uses:
            if var not in visible and var not in reported:
                reported.add(var)
                yield Fault(var=var, step=index, earlier=binders.get(var), kind="not-dominated")
        if step.kind in (PointKind.ELSE, PointKind.JOIN):
            visible.difference_update(stack.pop())
        if step.kind in (PointKind.BRANCH, PointKind.ELSE):
            stack.append([])
        elif step.instruction is not None:
            visible.add(step.instruction.var)
            stack[-1].append(step.instruction.var)


def used_variables(cfg: ControlFlowGraph) -> set[Var]:
    """The variables that something uses other than a kill, or a binding that is itself not used."""
    used: set[Var] = set()
    for step in reversed(cfg.points):
        if _is_kill(step):
            continue
        plain = step.kind is PointKind.INSTRUCTION and isinstance(step.instruction, Alias)
        if not plain or (step.instruction is not None and step.instruction.var in used):
            used.update(step.uses)
    return used


def killed_variables(cfg: ControlFlowGraph) -> set[Var]:
    """The variables that some kill names."""
    return {var for step in cfg.points if _is_kill(step) for var in step.uses}


def _is_kill(step: ProgramPoint) -> bool:
    return step.kind is PointKind.INSTRUCTION and isinstance(step.instruction, Kill)

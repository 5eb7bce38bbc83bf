"""Variables as handles: which are killed, out of scope, never used.

A kill drops the handle that a variable holds; the memory goes with the last handle.  So what is asked
here is asked of variables, never of what they point to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from symalloc.program.flow import Flow, Mark, Step
from symalloc.program.model import Alias, Instruction, Kill, Var

__all__ = ["Fault", "killed_variables", "out_of_scope", "used_variables", "uses_after_kill"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """At `step` `var` is used or killed although `earlier` (a Kill, or what binds it) forbids it."""

    var: Var
    step: int
    earlier: Instruction | None
    kind: str


def uses_after_kill(flow: Flow) -> Iterator[Fault]:
    """Uses (`use-after-kill`) and kills (`double-kill`) of variables that are killed on some path to them."""
    killed: dict[Var, Instruction] = {}
    stack: list[dict[Var, Instruction]] = []
    for index, step in enumerate(flow.steps):
        if killed and not killed.keys().isdisjoint(step.uses):
            yield from _faults(index, step, killed)
        if step.mark is Mark.IF:
            stack.append(dict(killed))
        elif step.mark is Mark.ELSE:
            killed, stack[-1] = stack[-1], killed
        elif step.mark is Mark.JOIN:
            killed = {**stack.pop(), **killed}
        elif isinstance(step.instruction, Kill) and isinstance(step.instruction.target, Var):
            killed.setdefault(step.instruction.target, step.instruction)


def _faults(index: int, step: Step, killed: Mapping[Var, Instruction]) -> Iterator[Fault]:
    kind = "double-kill" if _is_kill(step) else "use-after-kill"
    for var in dict.fromkeys(step.uses):
        if var in killed:
            yield Fault(var=var, step=index, earlier=killed[var], kind=kind)


def out_of_scope(flow: Flow) -> Iterator[Fault]:
    """The first use of each variable that stands where what binds it does not dominate."""
    visible: set[Var] = set(flow.function.params)
    binders = {s.instruction.var: s.instruction for s in flow.steps if s.instruction is not None}
    stack: list[list[Var]] = [[]]
    reported: set[Var] = set()
    for index, step in enumerate(flow.steps):
        for var in step.uses:
            if var not in visible and var not in reported:
                reported.add(var)
                yield Fault(var=var, step=index, earlier=binders.get(var), kind="not-dominated")
        if step.mark in (Mark.ELSE, Mark.JOIN):
            visible.difference_update(stack.pop())
        if step.mark in (Mark.IF, Mark.ELSE):
            stack.append([])
        elif step.instruction is not None:
            visible.add(step.instruction.var)
            stack[-1].append(step.instruction.var)


def used_variables(flow: Flow) -> set[Var]:
    """The variables that something uses other than a kill, or a binding that is itself not used."""
    used: set[Var] = set()
    for step in reversed(flow.steps):
        if _is_kill(step):
            continue
        plain = step.mark is Mark.PLAIN and isinstance(step.instruction, Alias)
        if not plain or (step.instruction is not None and step.instruction.var in used):
            used.update(step.uses)
    return used


def killed_variables(flow: Flow) -> set[Var]:
    """The variables that some kill names."""
    return {var for step in flow.steps if _is_kill(step) for var in step.uses}


def _is_kill(step: Step) -> bool:
    return step.mark is Mark.PLAIN and isinstance(step.instruction, Kill)

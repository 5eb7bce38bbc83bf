"""Liveness of handles: the variables that are used on some path from a program point.

A handle that is not live can be killed.  That frees memory only where it was the last one, and helps only
where more memory may be taken later; so that is told, too.
"""

from __future__ import annotations

from typing import NamedTuple

from symalloc.analysis.dataflow import DataflowProblem, States, backward
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph, PointKind
from symalloc.program.tvm_functions import packed_function

_ALLOCATES_NOTHING = frozenset(
    {ir.Alias, ir.AllocTensor, ir.Assert, ir.If, ir.Kill, ir.MakeTuple, ir.MatchCast, ir.TakeField}
)


class LiveHandles(NamedTuple):
    """The handles that are used later, and whether memory may be taken before the function is over."""

    live: frozenset[ir.Var] = frozenset()
    allocates: bool = False


def live_handles(cfg: ControlFlowGraph) -> States[LiveHandles]:
    """The handles live in front of (`before`) and behind (`after`) each point."""
    return backward(_HandleLiveness(cfg), LiveHandles())


class _HandleLiveness(DataflowProblem[LiveHandles]):
    """Liveness of variables; kills are no uses."""

    def transfer(self, point: int, state: LiveHandles) -> LiveHandles:
        at = self.cfg.points[point]
        instruction = at.instruction
        if at.kind is not PointKind.INSTRUCTION or instruction is None:
            return LiveHandles(state.live.union(at.uses), state.allocates)
        if isinstance(instruction, ir.Kill):
            return state
        live = (state.live - {instruction.var}).union(at.uses)
        return LiveHandles(live, state.allocates or _allocates(instruction))

    def edge(self, branch: int, state: LiveHandles, *, then: bool) -> LiveHandles:
        del then
        bound = self.cfg.points[branch].instruction
        return state if bound is None else LiveHandles(state.live - {bound.var}, state.allocates)

    def join(self, branch: int, then: LiveHandles, otherwise: LiveHandles) -> LiveHandles:
        del branch
        return LiveHandles(then.live | otherwise.live, then.allocates or otherwise.allocates)


def _allocates(instruction: ir.Instruction) -> bool:
    """True if an instruction by itself may take memory; a kernel may, for its workspace."""
    if isinstance(instruction, ir.CallPacked):
        return packed_function(instruction.name).allocates
    if isinstance(instruction, ir.View):
        return instruction.kind != "reshape"
    return type(instruction) not in _ALLOCATES_NOTHING

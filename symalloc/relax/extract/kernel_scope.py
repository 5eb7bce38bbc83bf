"""Places in the body of a kernel: what holds where a statement stands, and what may be skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tvm import ir, tirx

from symalloc.program.ir import KernelBuffer
from symalloc.program.kernel_access import KernelAccess, KernelLoop
from symalloc.relax.ir_types import Node
from symalloc.size.condition import Condition, ge, lt
from symalloc.size.expr import symbol


class EarlyExit(NamedTuple):
    """A statement that leaves a loop or the kernel, behind `found` accesses, in `loops`."""

    found: int
    loops: tuple[KernelLoop, ...]

    def may_skip(self, number: int, access: KernelAccess) -> bool:
        """Return whether access `number` may not be executed once this was: a later one, or one that is
        due in a later pass.
        """
        return number >= self.found or (bool(self.loops) and access.loops[:1] == self.loops[:1])


LEAVING_CALLS = frozenset({"tirx.break_loop", "tirx.continue_loop", "tirx.thread_return", "tirx.ret"})
"""Calls behind which a loop, or the kernel, is not gone on with."""


class KernelScope(NamedTuple):
    """The place of a statement in a kernel: what holds there, whether that is all, the loops around it."""

    domain: tuple[Condition, ...] = ()
    exact: bool = True
    loops: tuple[KernelLoop, ...] = ()

    def where(self, guards: Sequence[Condition], exact: bool) -> KernelScope:
        """The scope under further conditions."""
        held = tuple(part for guard in guards for part in guard.conjuncts)
        return KernelScope((*self.domain, *held), self.exact and exact, self.loops)

    def inside(self, loop: KernelLoop) -> KernelScope:
        """The scope inside a loop."""
        count = symbol(loop.symbol)
        ends = () if loop.passes is None else (lt(count, loop.passes),)
        within = self.where((ge(count, 0), *ends), loop.passes is not None)
        return within._replace(loops=(*self.loops, loop))


class KernelAccesses(NamedTuple):
    """The accesses of a kernel's parameters, those of the buffers that it allocates, and these buffers.

    The buffers of its own are numbered behind the parameters.
    """

    of_parameters: tuple[KernelAccess, ...]
    of_own: tuple[KernelAccess, ...]
    own: tuple[KernelBuffer, ...]


def leaves(statement: Node) -> bool:
    """Return whether nothing that follows `statement` in its sequence is executed."""
    while type(statement) is tirx.SeqStmt and len(statement.seq):
        statement = statement.seq[len(statement.seq) - 1]
    if type(statement) is tirx.stmt.Evaluate:
        return is_leaving_call(statement.value)
    return type(statement) in (tirx.Return, tirx.Break, tirx.Continue)


def is_leaving_call(value: Node) -> bool:
    """Return whether a call leaves a loop, or the kernel."""
    return type(value) is ir.Call and getattr(value.op, "name", None) in LEAVING_CALLS

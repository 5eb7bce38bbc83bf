"""Places in the body of a kernel: what holds where a statement stands, and what may be skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tvm import ir, tirx

from symalloc.program.ir import KernelBuffer
from symalloc.program.kernel_access import KernelAccess, KernelLoop
from symalloc.relax.ir_types import Node, elements
from symalloc.size.condition import Condition, Relation, ge, lt
from symalloc.size.expr import symbol


class EarlyExit(NamedTuple):
    """A statement that leaves a loop or the kernel, behind `found` accesses, in `loops`.

    `known`: it ends the innermost loop, and what follows it there holds in its domain that it did not.
    """

    found: int
    loops: tuple[KernelLoop, ...]
    known: bool = False

    def may_skip(self, number: int, access: KernelAccess) -> bool:
        """Return whether access `number` may not be executed once this was: a later one, or one that is
        due in a later pass.
        """
        if self.known:
            return number < self.found and access.loops[: len(self.loops)] == self.loops
        return number >= self.found or (bool(self.loops) and access.loops[:1] == self.loops[:1])


LEAVING_CALLS = frozenset({"tirx.break_loop", "tirx.continue_loop", "tirx.thread_return", "tirx.ret"})
"""Calls behind which a loop, or the kernel, is not gone on with."""


class KernelScope(NamedTuple):
    """The place of a statement in a kernel: what holds there, whether that is all, the loops around it."""

    domain: tuple[Condition, ...] = ()
    exact: bool = True
    loops: tuple[KernelLoop, ...] = ()
    body: Node | None = None
    """The body of the innermost loop, or of the kernel; None where another construct is in between."""

    def where(self, guards: Sequence[Condition], exact: bool) -> KernelScope:
        """The scope under further conditions."""
        held = tuple(part for guard in guards for part in guard.conjuncts)
        return self._replace(domain=(*self.domain, *held), exact=self.exact and exact)

    def inside(self, loop: KernelLoop, body: Node | None = None) -> KernelScope:
        """The scope inside a loop."""
        count = symbol(loop.symbol)
        ends = () if loop.passes is None else (lt(count, loop.passes),)
        within = self.where((ge(count, 0), *ends), loop.passes is not None)
        return within._replace(loops=(*self.loops, loop), body=body)


class KernelAccesses(NamedTuple):
    """The accesses of a kernel's parameters, those of the buffers that it allocates, and these buffers.

    The buffers of its own are numbered behind the parameters.
    """

    of_parameters: tuple[KernelAccess, ...]
    of_own: tuple[KernelAccess, ...]
    own: tuple[KernelBuffer, ...]


def still_unknown(left: EarlyExit, branch: Node, scope: KernelScope, staying: KernelScope) -> list[EarlyExit]:
    """The exit at the end of the then-branch of `branch`, as far as it is still unknown once the accesses
    behind it are noted under `staying`: none, or an exit that only earlier accesses have to heed.
    """
    body = scope.body
    if not staying.exact or body is None:
        return [left]
    following = elements(body.seq) if type(body) is tirx.SeqStmt else [body]
    if not any(branch.same_as(statement) for statement in following):
        return [left]
    kind = _leaving_kind(_last(branch.then_case))
    if kind == (_CONTINUES if scope.loops else _RETURNS):
        return []
    stays = staying.domain[len(scope.domain) :]
    ends_for_good = bool(scope.loops) and all(_held_before(c, scope.loops[-1]) for c in stays)
    return [left._replace(known=True)] if kind == _BREAKS and ends_for_good else [left]


_CONTINUES, _BREAKS, _RETURNS = "tirx.continue_loop", "tirx.break_loop", "tirx.ret"


def _leaving_kind(statement: Node) -> str | None:
    if type(statement) is tirx.stmt.Evaluate:
        return getattr(getattr(statement.value, "op", None), "name", None)
    return {tirx.Continue: _CONTINUES, tirx.Break: _BREAKS, tirx.Return: _RETURNS}.get(type(statement))


def _held_before(condition: Condition, loop: KernelLoop) -> bool:
    """Return whether a condition that holds at a pass of a loop has held at each pass before."""
    if loop.parallel or not (isinstance(condition, Relation) and condition.operator == "<="):
        return False
    count = symbol(loop.symbol)
    rate = condition.expr.terms.get(next(iter(count.terms)), 0)
    return rate >= 0 and loop.symbol not in (condition.expr - count * rate).symbols


def _last(statement: Node) -> Node:
    while type(statement) is tirx.SeqStmt and len(statement.seq):
        statement = statement.seq[len(statement.seq) - 1]
    return statement


def leaves(statement: Node) -> bool:
    """Return whether nothing that follows `statement` in its sequence is executed."""
    statement = _last(statement)
    if type(statement) is tirx.stmt.Evaluate:
        return is_leaving_call(statement.value)
    return type(statement) in (tirx.Return, tirx.Break, tirx.Continue)


def is_leaving_call(value: Node) -> bool:
    """Return whether a call leaves a loop, or the kernel."""
    return type(value) is ir.Call and getattr(value.op, "name", None) in LEAVING_CALLS

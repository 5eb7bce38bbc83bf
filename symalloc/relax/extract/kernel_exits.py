"""Loops of a kernel that are left early: which of their passes are executed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from tvm import ir, tirx

from symalloc.program.ir import KernelAccess, KernelBuffer, KernelLoop
from symalloc.relax.ir_types import Node
from symalloc.size.choice import maximum
from symalloc.size.condition import (
    FALSE,
    Condition,
    Or,
    Relation,
    conjunction,
    disjunction,
    ge,
    le,
    lt,
    negate,
)
from symalloc.size.expr import ZERO, Expr, floordiv, symbol


class KernelScope(NamedTuple):
    """The place of a statement in a kernel: what holds there, whether that is all, the loops around it."""

    domain: tuple[Condition, ...] = ()
    exact: bool = True
    loops: tuple[KernelLoop, ...] = ()

    def where(self, guards: Sequence[Condition], exact: bool) -> KernelScope:
        """The scope under further conditions."""
        held = tuple(part for guard in guards for part in guard.conjuncts)
        return self._replace(domain=(*self.domain, *held), exact=self.exact and exact)

    def inside(self, loop: KernelLoop) -> KernelScope:
        """The scope inside a loop."""
        count = symbol(loop.symbol)
        ends = () if loop.passes is None else (lt(count, loop.passes),)
        within = self.where((ge(count, 0), *ends), loop.passes is not None)
        return within._replace(loops=(*self.loops, loop))

    @property
    def unreached(self) -> KernelScope:
        """The scope behind a statement that nothing follows."""
        return self._replace(domain=(*self.domain, FALSE))

    @property
    def is_unreached(self) -> bool:
        """True if nothing is executed here."""
        return FALSE in self.domain

    def beyond(self, outer: KernelScope) -> Condition:
        """The conditions that hold here in addition to `outer`, which this scope was made from."""
        return conjunction(self.domain[len(outer.domain) :])

    def behind(self, then: KernelScope, otherwise: KernelScope) -> KernelScope:
        """The scope behind two branches that end in these scopes, some of whose passes were left there."""
        for ended, other in ((then, otherwise), (otherwise, then)):
            if ended.is_unreached:
                return other
        either = disjunction((then.beyond(self), otherwise.beyond(self)))
        return self.where((either,), then.exact and otherwise.exact)


class KernelAccesses(NamedTuple):
    """The accesses of a kernel's parameters, those of the buffers that it allocates, and these buffers.

    The buffers of its own are numbered behind the parameters.
    """

    of_parameters: tuple[KernelAccess, ...]
    of_own: tuple[KernelAccess, ...]
    own: tuple[KernelBuffer, ...]


Leaving: TypeAlias = Literal["break", "continue", "return"]

LEAVING: Mapping[object, Leaving] = {
    "tirx.break_loop": "break",
    "tirx.continue_loop": "continue",
    "tirx.thread_return": "return",
    "tirx.ret": "return",
    tirx.Break: "break",
    tirx.Continue: "continue",
    tirx.Return: "return",
}
"""Calls, by name, and statements behind which a loop, or the kernel, is not gone on with."""


def leaving(node: Node) -> Leaving | None:
    """The way in which a statement, or the call that it evaluates, leaves a loop or the kernel."""
    if type(node) is tirx.stmt.Evaluate and type(node.value) is ir.Call:
        return LEAVING.get(getattr(node.value.op, "name", ""))
    return LEAVING.get(type(node))


class UnknownExit(NamedTuple):
    """A statement that leaves loops or the kernel, behind `found` accesses, in `loops`, nobody knows when."""

    found: int
    loops: tuple[KernelLoop, ...]

    def may_skip(self, number: int, access: KernelAccess) -> bool:
        """Return whether access `number` may not be executed once this was: a later one, or one that is
        due in a later pass.
        """
        return number >= self.found or (bool(self.loops) and access.loops[:1] == self.loops[:1])


class Break(NamedTuple):
    """A way out of a loop: a pass that goes on holds `stays`, and one that holds it goes on if `exact`."""

    stays: Condition | None
    exact: bool


class LoopFrame:
    """A loop whose body is being read, from access `start` on; its body stands in `scope`.

    None for a body that no pass of which is left with `break` or `continue` alone: that of the kernel.
    """

    def __init__(self, scope: KernelScope | None, start: int) -> None:
        self.scope, self.start = scope, start
        self.breaks: list[Break] = []

    def leave(self, scope: KernelScope) -> None:
        """Note a `break` that is executed at each point of `scope`."""
        if self.scope is None or scope.is_unreached:
            return
        known = scope.exact and scope.loops == self.scope.loops
        self.breaks.append(Break(negate(scope.beyond(self.scope)) if known else None, known))

    def branched(self, before: int, scope: KernelScope, otherwise: KernelScope) -> None:
        """Note the `otherwise` side of an If in `scope` whose other side does nothing but leave the loop,
        with the only break noted behind the first `before`.
        """
        if len(self.breaks) == before + 1 and self.breaks[-1].stays is None and scope == self.scope:
            self.breaks[-1] = Break(otherwise.beyond(scope), False)

    def executed(self, access: KernelAccess) -> KernelAccess:
        """An access of the body, with the conditions under which no pass before it has left the loop."""
        if not self.breaks or self.scope is None:
            return access
        loop = self.scope.loops[-1]
        domain, exact = dict.fromkeys(access.domain), access.exact
        for stays, known in self.breaks:
            parts = () if stays is None or loop.parallel else stays.conjuncts
            exact = exact and known and bool(parts)
            for part in parts:
                held = _held_before(part, loop, now=part in domain)
                exact = exact and held is not None
                if held is not None and part in domain:
                    del domain[part]
                domain |= dict.fromkeys(() if held is None else held.conjuncts)
        return replace(access, domain=tuple(domain), exact=exact)


def _rate(condition: Condition, loop: KernelLoop) -> int | None:
    """The sign of what a pass adds to the left side of a relation `... <= 0`; None for any other."""
    if not isinstance(condition, Relation) or condition.operator != "<=":
        return None
    rate = _factor(condition.expr, loop)
    return None if rate is None else (rate > 0) - (rate < 0)


def _factor(expr: Expr, loop: KernelLoop) -> int | None:
    """The number that a pass adds to an expression; None where it is none."""
    count = symbol(loop.symbol)
    rate = expr.terms.get(next(iter(count.terms)), 0)
    return None if loop.symbol in (expr - count * rate).symbols else rate


def _held_before(condition: Condition, loop: KernelLoop, *, now: bool) -> Condition | None:
    """The condition that `condition` has held at each pass before the current one, and if `now` at this one,
    too; None where it has no plain form.
    """
    count = symbol(loop.symbol)
    if isinstance(condition, Relation) and condition.operator == "!=":
        return _missed(condition, loop, now=now)
    parts = condition.operands if isinstance(condition, Or) else (condition,)
    rates = {_rate(part, loop) for part in parts}
    if rates <= {0, 1}:
        if now:
            return condition
        if isinstance(condition, Relation) and rates == {1}:
            return _up_to(condition.expr, loop)
        return _at_pass(condition, count - 1, count)
    if not rates <= {0, -1}:
        return None
    first = _at_pass(condition, ZERO, count)
    return conjunction((condition, first)) if now else first


def _at_pass(condition: Condition, number: Expr, count: Expr) -> Condition:
    """`condition` at the pass `number`, unless this is the first one."""
    (name,) = count.symbols
    return disjunction((le(count, 0), condition.substitute({name: number})))


def _up_to(expr: Expr, loop: KernelLoop) -> Condition:
    """`expr <= 0` at the pass before this one, if there is one, where `expr` grows with each."""
    count, rate = symbol(loop.symbol), _factor(expr, loop) or 1
    return le(count, maximum(floordiv(count * rate - expr, rate) + 1, ZERO))


def _missed(condition: Relation, loop: KernelLoop, *, now: bool) -> Condition | None:
    """`... != 0` at each pass before this one, and if `now` at this one."""
    count, rate = symbol(loop.symbol), _factor(condition.expr, loop)
    if rate not in (1, -1):
        return None
    hit = (count * rate - condition.expr) * rate
    never = lt(hit, 0)
    yet = lt(count, hit) if now else le(count, hit)
    return yet if never.as_bool is False else disjunction((yet, never))


def without_skipped(found: Iterable[KernelAccess], exits: Iterable[UnknownExit]) -> list[KernelAccess]:
    """The accesses, not exact where an exit may skip them."""
    known = tuple(exits)
    return [
        replace(access, exact=False) if any(e.may_skip(number, access) for e in known) else access
        for number, access in enumerate(found)
    ]

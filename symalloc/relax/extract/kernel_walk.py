"""Reads the loads and stores of a kernel from the body of a PrimFunc, and what it hands to callees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal, TypeAlias

from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim

from symalloc.program.ir import KernelAccess, KernelLoop
from symalloc.program.tvm_functions import packed_function
from symalloc.relax.extract.kernel_exits import (
    KernelAccesses,
    KernelScope,
    LoopFrame,
    UnknownExit,
    leaving,
    without_skipped,
)
from symalloc.relax.extract.kernel_values import BufferPlaces, KernelValues
from symalloc.relax.extract.symbols import Symbols
from symalloc.relax.ir_types import Node, VarNode, constant_extent, elements, visit
from symalloc.size.condition import eq
from symalloc.size.expr import Expr, ceildiv, constant, symbol

AccessKind: TypeAlias = Literal["load", "store"]
_BOTH: tuple[AccessKind, ...] = ("load", "store")
_CONTRACTS: Mapping[int, tuple[AccessKind, ...]] = {1: ("load",), 2: ("store",)}
"""The kinds of accesses by the mask of `tvm_access_ptr`."""
_SIDE_BY_SIDE = frozenset({tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.THREAD_BINDING})
_THREADS = frozenset({"thread_extent", "virtual_thread"})


def kernel_accesses(function: Node, symbols: Symbols, is_private: Callable[[int], bool]) -> KernelAccesses:
    """The loads and stores of `function`, in its order; its extents and scalars are defined in `symbols`, and
    loops get symbols of their own there.  `is_private` tells, by its address, whether nothing but loads and
    stores touches a buffer.

    Each comes with its indices and the points at which it is executed.  Nothing is approximated: what has no
    exact form is said to be unknown (an index that is None, a domain that is not exact).
    """
    walk = _KernelWalk(function, symbols, is_private)
    walk.statement(function.body, KernelScope())
    found, places = without_skipped(walk.found, walk.exits), walk.places
    return KernelAccesses(
        of_parameters=tuple(access for access in found if not places.is_own(access.parameter)),
        of_own=tuple(access for access in found if places.is_own(access.parameter)),
        own=tuple(places.own),
    )


class _KernelWalk:
    """Follows the statements of a body in the order of their execution, and notes accesses in `found`."""

    def __init__(self, function: Node, symbols: Symbols, is_private: Callable[[int], bool]) -> None:
        self.symbols = symbols
        self.values = KernelValues(symbols, is_private)
        self.scalars = self.values.scalars
        self.places = BufferPlaces(function.params, self.values.lasting)
        self.found: list[KernelAccess] = []
        self.exits: list[UnknownExit] = []
        self.frames = [LoopFrame(None, 0)]
        self.leavings = 0

    def statement(self, node: Node, scope: KernelScope) -> KernelScope:
        """Read a statement; return the scope of what follows it."""
        read = _STATEMENTS.get(type(node))
        if read is None:
            self.anything(node, scope)
            self.scalars.forget()
            return scope
        return read(self, node, scope) or scope

    def sequence(self, node: Node, scope: KernelScope) -> KernelScope:
        for inner in elements(node.seq):
            if scope.is_unreached:
                break
            scope = self.statement(inner, scope)
        return scope

    # -- loops ---------------------------------------------------------------------------------------------

    def loop(self, node: Node, scope: KernelScope) -> None:
        self.scalars.forget_stored(node.body)  # C evaluates the extent before each pass
        self.read(node.min, scope)
        self.read(node.extent, scope)
        step = 1 if node.step is None else node.step.value if type(node.step) is prim.IntImm else 0
        first, extent = self.values.expr_or_none(node.min), self.values.expr_or_none(node.extent)
        passes = None if extent is None or step < 1 else ceildiv(extent, step)
        loop = self._loop(node.loop_var, passes, node.kind in _SIDE_BY_SIDE)
        known = first is not None and step >= 1
        self.values.bind(
            node.loop_var, symbol(loop.symbol) * step + first if known and first is not None else None
        )
        self._passes(node.body, scope.inside(loop))

    def _loop(self, var: VarNode, passes: Expr | None, parallel: bool) -> KernelLoop:
        return KernelLoop(symbol=self.symbols.counter(var.name), passes=passes, parallel=parallel)

    def _passes(self, body: Node, scope: KernelScope) -> None:
        """The body of a loop; accesses are told which passes are executed."""
        frame, leavings = LoopFrame(scope, len(self.found)), self.leavings
        self.frames.append(frame)
        with self.scalars.perhaps(body):
            self.statement(body, scope)
        self.frames.pop()
        self.leavings = leavings
        if frame.breaks:
            self.found[frame.start :] = map(frame.executed, self.found[frame.start :])

    def endless(self, node: Node, scope: KernelScope) -> None:
        inside = scope.inside(KernelLoop(symbol=self.symbols.counter("while_"), passes=None))
        self.scalars.forget_stored(node.body)
        self.read(node.condition, inside)
        self._passes(node.body, inside.where(*self.values.guard(node.condition, holds=True)))

    def attribute(self, node: Node, scope: KernelScope) -> None:
        if node.attr_key in _THREADS:
            self.read(node.value, scope)
            loop = self._loop(node.node.var, self.values.expr_or_none(node.value), parallel=True)
            self.values.bind(node.node.var, symbol(loop.symbol))
            scope = scope.inside(loop)
        with self.scalars.perhaps(node.body):
            self._within(node.body, scope)

    def _within(self, body: Node, scope: KernelScope) -> None:
        """A body that others follow, whatever is left early inside."""
        before = self.leavings
        self.statement(body, scope)
        if self.leavings > before:
            self.exits.append(UnknownExit(len(self.found), scope.loops))

    # -- branches and exits --------------------------------------------------------------------------------

    def branches(self, node: Node, scope: KernelScope) -> KernelScope | None:
        self.read(node.condition, scope)
        frame, before = self.frames[-1], len(self.frames[-1].breaks)
        leavings = self.leavings
        with self.scalars.branch():
            then = self.statement(node.then_case, scope.where(*self.values.guard(node.condition, holds=True)))
        otherwise = scope.where(*self.values.guard(node.condition, holds=False))
        if then.is_unreached and self.leavings == leavings + 1:
            frame.branched(before, scope, otherwise)
        if node.else_case is not None:
            otherwise = self.statement(node.else_case, otherwise)
        self.scalars.forget_stored(node)
        return scope.behind(then, otherwise) if self.leavings > leavings else None

    def leave(self, node: Node, scope: KernelScope) -> KernelScope:
        self.leavings += 1
        how, frame = leaving(node), self.frames[-1]
        if frame.scope is None and scope.loops:
            self.exits.append(UnknownExit(len(self.found), scope.loops))
        elif how == "break":
            frame.leave(scope)
        elif how == "return" and frame.scope is not None:
            self.exits.append(UnknownExit(len(self.found), scope.loops))
        return scope.unreached

    def evaluate(self, node: Node, scope: KernelScope) -> KernelScope | None:
        self.read(node.value, scope)
        return None if leaving(node) is None else self.leave(node, scope)

    def returned(self, node: Node, scope: KernelScope) -> KernelScope:
        self.read(node.value, scope)
        return self.leave(node, scope)

    def asserted(self, node: Node, scope: KernelScope) -> KernelScope:
        """Behind an assertion its condition holds, or nothing is executed."""
        self.read(node.condition, scope)
        return scope.where(self.values.guard(node.condition, holds=True)[0], True)

    # -- blocks --------------------------------------------------------------------------------------------

    def block(self, node: Node, scope: KernelScope) -> None:
        """A block: its axes bound, its predicate, its initialisation at the first step of a reduction."""
        block, values = node.block, []
        self.scalars.forget_stored(block)  # TVM puts the values of axes and regions where they are used
        for axis, bound in zip(elements(block.iter_vars), elements(node.iter_values), strict=True):
            self.read(bound, scope)
            values.append((axis, self.values.expr_or_none(bound)))
        self.read(node.predicate, scope)
        scope = scope.where(*self.values.guard(node.predicate, holds=True))
        for axis, value in values:
            self.values.bind(axis.var, value)
        for buffer in elements(block.alloc_buffers):
            self._allocate(buffer, scope)
        for match in elements(block.match_buffers):
            self.places.match(match.buffer, match.source)
        if block.init is not None:
            with self.scalars.perhaps(block.init):
                self.statement(block.init, self._at_first_step(values, scope))
        with nullcontext() if constant_extent(node.predicate) else self.scalars.perhaps(block.body):
            self._within(block.body, scope)

    def _at_first_step(self, axes: Sequence[tuple[Node, Expr | None]], scope: KernelScope) -> KernelScope:
        for axis, value in axes:
            if axis.iter_type == tirx.IterVar.CommReduce:
                first = self.values.expr_or_none(axis.dom.min)
                known = (eq(value, first),) if value is not None and first is not None else ()
                scope = scope.where(known, bool(known))
        return scope

    # -- stores, and names ---------------------------------------------------------------------------------

    def store(self, node: Node, scope: KernelScope) -> None:
        for index in (node.value, *elements(node.indices)):
            self.read(index, scope)
        self.access("store", node.buffer, node, scope, self.copied(node.value, scope))
        if self.scalars.follows(node.buffer):
            self.scalars.store(node, self.values.expr_or_none(node.value), scope)

    def bound(self, node: Node, scope: KernelScope) -> None:
        if self.places.alias(node.var, node.value):
            return
        self.read(node.value, scope)
        self.values.let(node.var, node.value)

    def declare(self, node: Node, scope: KernelScope) -> None:
        data = getattr(node, "data", None)
        if data is not None and not self.places.declare(node.buffer, data):
            self.read(data, scope)

    def allocated(self, node: Node, scope: KernelScope) -> None:
        self._allocate(node.buffer, scope)

    def _allocate(self, buffer: Node, scope: KernelScope) -> None:
        self.places.allocate(buffer)
        self.scalars.allocate(buffer, scope)

    # -- expressions ---------------------------------------------------------------------------------------

    def read(self, node: Node, scope: KernelScope) -> None:
        """Note the loads of an expression."""
        kind = type(node)
        if kind in _LITERALS:
            return
        note = _EXPRESSIONS.get(kind)
        if note is not None:
            note(self, node, scope)
        elif issubclass(kind, (prim.BinaryOpExpr, prim.CmpExpr)):
            self.read(node.a, scope)
            self.read(node.b, scope)
        else:
            self.anything(node, scope)

    # -- what is handed on ---------------------------------------------------------------------------------

    def mention(self, node: Node, scope: KernelScope) -> None:
        """A variable: one that is a buffer is handed to somebody here."""
        if self.places.has(node):
            self._handed(self.places.parameter(node), scope, _BOTH)

    def _handed(
        self, parameter: int, scope: KernelScope, kinds: tuple[AccessKind, ...], *, exact: bool = False
    ) -> None:
        """Note that a callee may do `kinds` to any element, or does so to some if it is `exact`."""
        if self.places.is_own(parameter):
            return
        self.found += (
            KernelAccess(
                parameter=parameter,
                kind=kind,
                indices=self.places.no_indices(parameter),
                domain=scope.domain,
                exact=exact and scope.exact,
                loops=scope.loops,
                handed=True,
            )
            for kind in kinds
        )

    def anything(self, node: Node, scope: KernelScope) -> None:
        """Take a construct that is not known to do anything to what it mentions."""
        for parameter in self._mentioned(node):
            self._handed(parameter, scope, _BOTH)

    def _mentioned(self, node: Node) -> tuple[int, ...]:
        """The parameters that a node speaks of."""
        seen: dict[int, None] = {}

        def note(var: Node) -> None:
            if self.places.has(var):
                seen[self.places.parameter(var)] = None

        visit(node, (ir.Var, note))
        return tuple(seen)

    def call(self, node: Node, scope: KernelScope) -> None:
        name = getattr(node.op, "name", None)
        arguments = elements(node.args)
        if name == "prim.if_then_else":
            self._chosen(arguments[0], arguments[1], arguments[2], scope)
        elif name == "tirx.tvm_access_ptr":
            self._pointer(arguments, scope)
        elif name == "tirx.tvm_call_packed":
            self._packed(arguments, scope)
        else:
            for argument in arguments:
                taken = name == "tirx.address_of" and type(argument) is ir.TensorLoad
                self.read(argument.source if taken else argument, scope)

    def _pointer(self, arguments: list[Node], scope: KernelScope) -> None:
        """A pointer with a mask that says what its holder does through it."""
        mask = arguments[4].value if len(arguments) > 4 and type(arguments[4]) is prim.IntImm else 0
        for parameter in self._mentioned(arguments[1]):
            self._handed(parameter, scope, _CONTRACTS.get(mask, _BOTH))
        for argument in arguments[2:4]:
            self.read(argument, scope)

    def _packed(self, arguments: list[Node], scope: KernelScope) -> None:
        """A call of a packed function, whose effects are known, or it may do anything to its arguments."""
        known = packed_function(arguments[0].value) if type(arguments[0]) is ir.StringImm else None
        for number, argument in enumerate(arguments[1:]):
            kinds = _BOTH
            if known is not None and (known.writes or known.reads_only):
                kinds = ("store",) if number in known.fills else () if number in known.writes else ("load",)
            if kinds is _BOTH or type(argument) is not ir.Call:
                self.read(argument, scope)
                continue
            for parameter in self._mentioned(argument):
                self._handed(parameter, scope, kinds or _BOTH, exact=kinds == ("load",))

    # -- what is loaded on a condition ---------------------------------------------------------------------

    def select(self, node: Node, scope: KernelScope) -> None:
        """TVM makes a select that loads an if_then_else, so that it loads from one side only."""
        self._chosen(node.condition, node.true_value, node.false_value, scope)

    def _chosen(self, test: Node, then: Node, otherwise: Node, scope: KernelScope) -> None:
        self.read(test, scope)
        self._guarded(then, test, True, scope)
        self._guarded(otherwise, test, False, scope)

    def _guarded(self, node: Node, test: Node, holds: bool, scope: KernelScope) -> None:
        if type(node) not in _LITERALS:
            self.read(node, scope.where(*self.values.guard(test, holds)))

    def both(self, node: Node, scope: KernelScope) -> None:
        """The right side of `and` and of `or` matters only where the left side leaves it open."""
        self.read(node.a, scope)
        self._guarded(node.b, node.a, type(node) is prim.And, scope)

    def let(self, node: Node, scope: KernelScope) -> None:
        self.read(node.value, scope)
        self.values.let(node.var, node.value)
        self.read(node.body, scope)

    def ramp(self, node: Node, scope: KernelScope) -> None:
        self.read(node.base, scope)
        self.read(node.stride, scope)

    def wrapped(self, node: Node, scope: KernelScope) -> None:
        self.read(node.value, scope)

    def negated(self, node: Node, scope: KernelScope) -> None:
        self.read(node.a, scope)

    # -- accesses ------------------------------------------------------------------------------------------

    def load(self, node: Node, scope: KernelScope) -> None:
        for index in elements(node.indices):
            self.read(index, scope)
        self.access("load", node.source, node, scope)

    def copied(self, value: Node, scope: KernelScope) -> tuple[KernelAccess, ...]:
        """The loads that a stored value is, unchanged, each with the conditions of the choices before it."""
        return tuple(self._copied(value, scope._replace(domain=(), exact=True)))

    def _copied(self, value: Node, scope: KernelScope) -> Iterator[KernelAccess]:
        kind = type(value)
        if kind is ir.TensorLoad:
            if self.places.has(value.source) and getattr(value, "predicate", None) is None:
                yield self._plain_load(value, scope)
            return
        if kind is prim.Select:
            test, then, otherwise = value.condition, value.true_value, value.false_value
        elif kind is ir.Call and getattr(value.op, "name", None) == "prim.if_then_else":
            test, then, otherwise = elements(value.args)
        else:
            return
        for side, holds in ((then, True), (otherwise, False)):
            within = scope.where(*self.values.guard(test, holds))
            if within.exact:
                yield from self._copied(side, within)

    def _plain_load(self, node: Node, scope: KernelScope) -> KernelAccess:
        indices = tuple(self.values.expr_or_none(index) for index in elements(node.indices))
        return KernelAccess(
            parameter=self.places.parameter(node.source),
            kind="load",
            indices=self.places.indices(node.source, indices),
            domain=scope.domain,
            loops=scope.loops,
        )

    def access(
        self,
        kind: AccessKind,
        buffer: Node,
        node: Node,
        scope: KernelScope,
        copies: tuple[KernelAccess, ...] = (),
    ) -> None:
        """Note a load or a store of a known buffer; `copies` are the loads that the stored value is."""
        if not self.places.has(buffer):
            return
        if getattr(node, "predicate", None) is not None:
            scope = scope._replace(exact=False)
        indices = []
        for index in elements(node.indices):
            if type(index) is prim.Ramp:
                scope, value = self._lanes(index, scope)
            else:
                value = self.values.expr_or_none(index)
            indices.append(value)
        self.found.append(
            KernelAccess(
                parameter=self.places.parameter(buffer),
                kind=kind,
                indices=self.places.indices(buffer, tuple(indices)),
                domain=scope.domain,
                exact=scope.exact,
                loops=scope.loops,
                copies=copies,
            )
        )

    def _lanes(self, ramp: Node, scope: KernelScope) -> tuple[KernelScope, Expr | None]:
        """The lanes of a vector as a loop of their own."""
        lanes = ramp.lanes if isinstance(ramp.lanes, int) else getattr(ramp.lanes, "value", None)
        base, stride = self.values.expr_or_none(ramp.base), self.values.expr_or_none(ramp.stride)
        passes = None if lanes is None else constant(lanes)
        loop = KernelLoop(symbol=self.values.symbols.counter("lane"), passes=passes, parallel=True)
        value = None if base is None or stride is None else base + stride * symbol(loop.symbol)
        return scope.inside(loop), value


_LITERALS = frozenset({prim.IntImm, prim.FloatImm, ir.StringImm})

_EXPRESSIONS: Mapping[type, Callable[[_KernelWalk, Node, KernelScope], None]] = {
    ir.Var: _KernelWalk.mention,
    ir.TensorLoad: _KernelWalk.load,
    ir.Call: _KernelWalk.call,
    prim.Select: _KernelWalk.select,
    prim.And: _KernelWalk.both,
    prim.Or: _KernelWalk.both,
    prim.Not: _KernelWalk.negated,
    prim.Let: _KernelWalk.let,
    prim.Cast: _KernelWalk.wrapped,
    prim.Broadcast: _KernelWalk.wrapped,
    prim.Ramp: _KernelWalk.ramp,
}
_STATEMENTS: Mapping[type, Callable[[_KernelWalk, Node, KernelScope], KernelScope | None]] = {
    tirx.SeqStmt: _KernelWalk.sequence,
    tirx.For: _KernelWalk.loop,
    tirx.While: _KernelWalk.endless,
    tirx.AttrStmt: _KernelWalk.attribute,
    tirx.IfThenElse: _KernelWalk.branches,
    s_tir.SBlockRealize: _KernelWalk.block,
    tirx.BufferStore: _KernelWalk.store,
    tirx.stmt.Evaluate: _KernelWalk.evaluate,
    tirx.Return: _KernelWalk.returned,
    tirx.Bind: _KernelWalk.bound,
    tirx.DeclBuffer: _KernelWalk.declare,
    tirx.AssertStmt: _KernelWalk.asserted,
    tirx.AllocBuffer: _KernelWalk.allocated,
    tirx.Break: _KernelWalk.leave,
    tirx.Continue: _KernelWalk.leave,
}

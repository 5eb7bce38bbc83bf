"""Reads the loads and stores of a kernel's parameters from the body of a PrimFunc, in its order.

Each comes with its indices and the points at which it is executed, as size expressions and conditions over
the symbols of the kernel and of the loops around it.  Nothing is approximated: what has no exact form is
said to be unknown (an index that is None, a domain that is not exact).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim

from symalloc.program.kernel_access import KernelAccess, KernelLoop
from symalloc.relax.extract.buffer_places import BufferPlaces
from symalloc.relax.extract.kernel_scope import (
    EarlyExit,
    KernelAccesses,
    KernelScope,
    is_leaving_call,
    leaves,
    still_unknown,
)
from symalloc.relax.extract.symbols import Symbols
from symalloc.relax.extract.tir_form import NotASizeError, TirForm
from symalloc.relax.ir_types import Node, VarNode, elements
from symalloc.size.condition import Condition, eq, negate
from symalloc.size.expr import Expr, ceildiv, constant, symbol

_SIDE_BY_SIDE = frozenset({tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.THREAD_BINDING})
_THREADS = frozenset({"thread_extent", "virtual_thread"})


def kernel_accesses(function: Node, symbols: Symbols) -> KernelAccesses:
    """The accesses of `function`, whose extents and scalars are defined in `symbols`.

    Loops get symbols of their own there.
    """
    walk = _AccessWalk(function, symbols)
    walk.statement(function.body, KernelScope(body=function.body))
    found = [
        replace(access, exact=False) if any(e.may_skip(number, access) for e in walk.exits) else access
        for number, access in enumerate(walk.found)
    ]
    places = walk.places
    return KernelAccesses(
        of_parameters=tuple(access for access in found if not places.is_own(access.parameter)),
        of_own=tuple(access for access in found if places.is_own(access.parameter)),
        own=tuple(places.own),
    )


class _AccessWalk:
    """Follows a body in the order of its execution.  Addresses of nodes stand for the nodes."""

    def __init__(self, function: Node, symbols: Symbols) -> None:
        self.symbols = symbols
        self.found: list[KernelAccess] = []
        self.exits: list[EarlyExit] = []
        self.values: dict[int, Expr | None] = {}
        self.flags: dict[int, Condition | None] = {}
        self.places = BufferPlaces(function.params, self.expr_or_none)
        self._renew()

    def _renew(self) -> None:
        """Forget what expressions were translated to: a variable has got another value."""
        self.form = TirForm(self.resolve, self.resolve_flag, nonnegative=self.symbols.is_size)

    # -- values --------------------------------------------------------------------------------------------

    def resolve(self, var: VarNode) -> Expr:
        key = var.__chandle__()
        value = self.values[key] if key in self.values else self.symbols.known(var)
        if value is None:
            raise NotASizeError(f"the value of `{var.name}` depends on data")
        return value

    def resolve_flag(self, var: VarNode) -> Condition | None:
        return self.flags.get(var.__chandle__())

    def bind(self, var: VarNode, value: Expr | None) -> None:
        key = var.__chandle__()
        if key in self.values or key in self.flags:
            self._renew()
        self.values[key] = value

    def expr_or_none(self, node: Node) -> Expr | None:
        """The exact form of an integer expression; None where it has none."""
        if type(node) is prim.Broadcast:
            return self.expr_or_none(node.value)
        return self.form.expr_or_none(node)

    def guard(self, test: Node, holds: bool) -> tuple[tuple[Condition, ...], bool]:
        """The conditions that hold where `test` is true, or is not; and whether they say all that it says."""
        kind = type(test)
        if kind is prim.Not:
            return self.guard(test.a, not holds)
        if kind is (prim.And if holds else prim.Or):
            left, right = self.guard(test.a, holds), self.guard(test.b, holds)
            return (*left[0], *right[0]), left[1] and right[1]
        try:
            known = self.form.condition(test)
        except NotASizeError:
            return (), False
        return (known if holds else negate(known),), True

    # -- statements ----------------------------------------------------------------------------------------

    def statement(self, node: Node, scope: KernelScope) -> KernelScope:
        """Read a statement; return the scope of what follows it."""
        read = _STATEMENTS.get(type(node))
        if read is None:
            self.anything(node, scope)
            return scope
        return read(self, node, scope) or scope

    def sequence(self, node: Node, scope: KernelScope) -> None:
        for inner in elements(node.seq):
            scope = self.statement(inner, scope)

    def loop(self, node: Node, scope: KernelScope) -> None:
        self.expr(node.min, scope)
        self.expr(node.extent, scope)
        step = 1 if node.step is None else node.step.value if type(node.step) is prim.IntImm else 0
        first, extent = self.expr_or_none(node.min), self.expr_or_none(node.extent)
        passes = None if extent is None or step < 1 else ceildiv(extent, step)
        loop = self._loop(node.loop_var, passes, node.kind in _SIDE_BY_SIDE)
        known = first is not None and step >= 1
        self.bind(node.loop_var, symbol(loop.symbol) * step + first if known and first is not None else None)
        self.statement(node.body, scope.inside(loop, node.body))

    def _loop(self, var: VarNode, passes: Expr | None, parallel: bool) -> KernelLoop:
        return KernelLoop(symbol=self.symbols.counter(var.name), passes=passes, parallel=parallel)

    def attribute(self, node: Node, scope: KernelScope) -> None:
        if node.attr_key in _THREADS:
            self.expr(node.value, scope)
            loop = self._loop(node.node.var, self.expr_or_none(node.value), parallel=True)
            self.bind(node.node.var, symbol(loop.symbol))
            scope = scope.inside(loop)
        self.statement(node.body, scope)

    def endless(self, node: Node, scope: KernelScope) -> None:
        inside = scope.inside(KernelLoop(symbol=self.symbols.counter("while_"), passes=None))
        self.expr(node.condition, inside)
        self.statement(node.body, inside.where(*self.guard(node.condition, holds=True)))

    def branches(self, node: Node, scope: KernelScope) -> KernelScope | None:
        self.expr(node.condition, scope)
        self.statement(node.then_case, scope.where(*self.guard(node.condition, holds=True)))
        otherwise = scope.where(*self.guard(node.condition, holds=False))
        if left := leaves(node.then_case):
            self.exits[-1:] = still_unknown(self.exits[-1], node, scope, otherwise)
        if node.else_case is not None:
            self.statement(node.else_case, otherwise)
        return otherwise if left else None

    def block(self, node: Node, scope: KernelScope) -> None:
        """A block: its axes bound, its predicate, its initialisation at the first step of a reduction."""
        block, values = node.block, []
        for axis, bound in zip(elements(block.iter_vars), elements(node.iter_values), strict=True):
            self.expr(bound, scope)
            values.append((axis, self.expr_or_none(bound)))
        self.expr(node.predicate, scope)
        scope = scope.where(*self.guard(node.predicate, holds=True))
        for axis, value in values:
            self.bind(axis.var, value)
        for buffer in elements(block.alloc_buffers):
            self.places.allocate(buffer)
        for match in elements(block.match_buffers):
            self.places.match(match.buffer, match.source)
        if block.init is not None:
            self.statement(block.init, self._at_first_step(values, scope))
        self.statement(block.body, scope)

    def _at_first_step(self, axes: Sequence[tuple[Node, Expr | None]], scope: KernelScope) -> KernelScope:
        for axis, value in axes:
            if axis.iter_type == tirx.IterVar.CommReduce:
                first = self.expr_or_none(axis.dom.min)
                known = (eq(value, first),) if value is not None and first is not None else ()
                scope = scope.where(known, bool(known))
        return scope

    def store(self, node: Node, scope: KernelScope) -> None:
        for index in (node.value, *elements(node.indices)):
            self.expr(index, scope)
        self.access("store", node.buffer, node, scope)

    def evaluate(self, node: Node, scope: KernelScope) -> None:
        self.expr(node.value, scope)
        if is_leaving_call(node.value):
            self.leave(node, scope)

    def leave(self, node: Node, scope: KernelScope) -> None:
        self.exits.append(EarlyExit(len(self.found), scope.loops))

    def returned(self, node: Node, scope: KernelScope) -> None:
        self.expr(node.value, scope)
        self.leave(node, scope)

    def bound(self, node: Node, scope: KernelScope) -> None:
        if self.places.alias(node.var, node.value):
            return
        self.expr(node.value, scope)
        self._let(node.var, node.value)

    def _let(self, var: VarNode, value: Node) -> None:
        if type(var.ty) is ir.PrimType and str(var.ty.dtype) == "bool":
            known, exact = self.guard(value, holds=True)
            if var.__chandle__() in self.flags:
                self._renew()
            self.flags[var.__chandle__()] = known[0] if exact and len(known) == 1 else None
        else:
            self.bind(var, self.expr_or_none(value))

    def declare(self, node: Node, scope: KernelScope) -> None:
        data = getattr(node, "data", None)
        if data is not None and not self.places.declare(node.buffer, data):
            self.expr(data, scope)

    def asserted(self, node: Node, scope: KernelScope) -> KernelScope:
        """Behind an assertion its condition holds, or nothing is executed."""
        self.expr(node.condition, scope)
        return scope.where(self.guard(node.condition, holds=True)[0], True)

    def allocated(self, node: Node, scope: KernelScope) -> None:
        self.places.allocate(node.buffer)

    # -- expressions ---------------------------------------------------------------------------------------

    def expr(self, node: Node, scope: KernelScope) -> None:
        """Note the loads of an expression."""
        kind = type(node)
        if kind in _LITERALS:
            return
        read = _EXPRESSIONS.get(kind)
        if read is not None:
            read(self, node, scope)
        elif issubclass(kind, (prim.BinaryOpExpr, prim.CmpExpr)):
            self.expr(node.a, scope)
            self.expr(node.b, scope)
        else:
            self.anything(node, scope)

    def mention(self, node: Node, scope: KernelScope) -> None:
        """A variable: one that is a buffer is handed to somebody here."""
        if self.places.has(node):
            self._unknown(self.places.parameter(node), scope)

    def _unknown(self, parameter: int, scope: KernelScope) -> None:
        if self.places.is_own(parameter):
            return
        indices = self.places.no_indices(parameter)
        for kind in ("load", "store"):
            self.found.append(
                KernelAccess(
                    parameter=parameter,
                    kind=kind,
                    indices=indices,
                    domain=scope.domain,
                    exact=False,
                    loops=scope.loops,
                )
            )

    def anything(self, node: Node, scope: KernelScope) -> None:
        """Take a construct that is not known to do anything to what it mentions."""
        seen: dict[int, None] = {}

        def visit(var: Node) -> None:
            if self.places.has(var):
                seen[self.places.parameter(var)] = None

        tvm_ffi.structural_walk(node, ((ir.Var, visit),), order="pre")
        for parameter in seen:
            self._unknown(parameter, scope)

    def load(self, node: Node, scope: KernelScope) -> None:
        for index in elements(node.indices):
            self.expr(index, scope)
        self.access("load", node.source, node, scope)

    def call(self, node: Node, scope: KernelScope) -> None:
        name = getattr(node.op, "name", None)
        arguments = elements(node.args)
        if name == "prim.if_then_else":
            test, then, otherwise = arguments
            self._chosen(test, then, otherwise, scope)
            return
        for argument in arguments:
            if name == "tirx.address_of" and type(argument) is ir.TensorLoad:
                self.expr(argument.source, scope)
            else:
                self.expr(argument, scope)

    def select(self, node: Node, scope: KernelScope) -> None:
        """TVM makes a select that loads an if_then_else, so that it loads from one side only."""
        self._chosen(node.condition, node.true_value, node.false_value, scope)

    def _chosen(self, test: Node, then: Node, otherwise: Node, scope: KernelScope) -> None:
        self.expr(test, scope)
        self._guarded(then, test, True, scope)
        self._guarded(otherwise, test, False, scope)

    def _guarded(self, node: Node, test: Node, holds: bool, scope: KernelScope) -> None:
        if type(node) not in _LITERALS:
            self.expr(node, scope.where(*self.guard(test, holds)))

    def both(self, node: Node, scope: KernelScope) -> None:
        """The right side of `and` and of `or` matters only where the left side leaves it open."""
        self.expr(node.a, scope)
        self._guarded(node.b, node.a, type(node) is prim.And, scope)

    def let(self, node: Node, scope: KernelScope) -> None:
        self.expr(node.value, scope)
        self._let(node.var, node.value)
        self.expr(node.body, scope)

    def ramp(self, node: Node, scope: KernelScope) -> None:
        self.expr(node.base, scope)
        self.expr(node.stride, scope)

    def wrapped(self, node: Node, scope: KernelScope) -> None:
        self.expr(node.value, scope)

    def negated(self, node: Node, scope: KernelScope) -> None:
        self.expr(node.a, scope)

    # -- accesses ------------------------------------------------------------------------------------------

    def access(self, kind: str, buffer: Node, node: Node, scope: KernelScope) -> None:
        """Note a load or a store of a known buffer."""
        if not self.places.has(buffer):
            return
        if getattr(node, "predicate", None) is not None:
            scope = scope._replace(exact=False)
        indices = []
        for index in elements(node.indices):
            if type(index) is prim.Ramp:
                scope, value = self._lanes(index, scope)
            else:
                value = self.expr_or_none(index)
            indices.append(value)
        self.found.append(
            KernelAccess(
                parameter=self.places.parameter(buffer),
                kind="store" if kind == "store" else "load",
                indices=self.places.indices(buffer, tuple(indices)),
                domain=scope.domain,
                exact=scope.exact,
                loops=scope.loops,
            )
        )

    def _lanes(self, ramp: Node, scope: KernelScope) -> tuple[KernelScope, Expr | None]:
        """The lanes of a vector as a loop of their own."""
        lanes = ramp.lanes if isinstance(ramp.lanes, int) else getattr(ramp.lanes, "value", None)
        base, stride = self.expr_or_none(ramp.base), self.expr_or_none(ramp.stride)
        passes = None if lanes is None else constant(lanes)
        loop = KernelLoop(symbol=self.symbols.counter("lane"), passes=passes, parallel=True)
        value = None if base is None or stride is None else base + stride * symbol(loop.symbol)
        return scope.inside(loop), value


_LITERALS = frozenset({prim.IntImm, prim.FloatImm, ir.StringImm})

_STATEMENTS: Mapping[type, Callable[[_AccessWalk, Node, KernelScope], KernelScope | None]] = {
    tirx.SeqStmt: _AccessWalk.sequence,
    tirx.For: _AccessWalk.loop,
    tirx.While: _AccessWalk.endless,
    tirx.AttrStmt: _AccessWalk.attribute,
    tirx.IfThenElse: _AccessWalk.branches,
    s_tir.SBlockRealize: _AccessWalk.block,
    tirx.BufferStore: _AccessWalk.store,
    tirx.stmt.Evaluate: _AccessWalk.evaluate,
    tirx.Return: _AccessWalk.returned,
    tirx.Bind: _AccessWalk.bound,
    tirx.DeclBuffer: _AccessWalk.declare,
    tirx.AssertStmt: _AccessWalk.asserted,
    tirx.AllocBuffer: _AccessWalk.allocated,
    tirx.Break: _AccessWalk.leave,
    tirx.Continue: _AccessWalk.leave,
}

_EXPRESSIONS: Mapping[type, Callable[[_AccessWalk, Node, KernelScope], None]] = {
    ir.Var: _AccessWalk.mention,
    ir.TensorLoad: _AccessWalk.load,
    ir.Call: _AccessWalk.call,
    prim.Select: _AccessWalk.select,
    prim.And: _AccessWalk.both,
    prim.Or: _AccessWalk.both,
    prim.Not: _AccessWalk.negated,
    prim.Let: _AccessWalk.let,
    prim.Cast: _AccessWalk.wrapped,
    prim.Broadcast: _AccessWalk.wrapped,
    prim.Ramp: _AccessWalk.ramp,
}

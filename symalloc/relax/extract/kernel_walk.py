"""Reads the loads and stores of a kernel from the body of a PrimFunc, and what it hands to callees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim

from symalloc.analysis.kernels.index_bounds import bounds_of
from symalloc.program.ir import KernelAccess, KernelBuffer, KernelLoop, Origin
from symalloc.program.packed_contracts import packed_contract
from symalloc.relax.extract.kernel_integers import KernelIntegers
from symalloc.relax.extract.kernel_values import BufferPlaces, KernelScope, KernelValues, Place
from symalloc.relax.extract.tir_to_expr import Symbols, choice_of
from symalloc.relax.ir_types import Node, constant_extent, elements, nodes_in
from symalloc.size.choice import minimum
from symalloc.size.condition import Condition, Relation, disjunction, eq, lt, negate
from symalloc.size.expr import Expr, ceildiv, constant, symbol

AccessKind: TypeAlias = Literal["load", "store"]
Counted: TypeAlias = Mapping[int, tuple[Expr, int]]
Kinds: TypeAlias = tuple[AccessKind, ...]
_BOTH: Kinds = ("load", "store")
_CONTRACTS: Mapping[int, Kinds] = {1: ("load",), 2: ("store",)}
"""The kinds of accesses by the mask of `tvm_access_ptr`."""
_SIDE_BY_SIDE = frozenset({tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.THREAD_BINDING})
_THREADS = frozenset({"thread_extent", "virtual_thread"})

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


ASSERT = "relax.run.assert_op"
"""What LegalizeOps makes of R.assert_op; it raises where its first argument is false."""


def complains(node: Node) -> bool:
    """Return whether a statement does nothing but let TVM's assertion fail."""
    if type(node) is not tirx.stmt.Evaluate or type(node.value) is not ir.Call:
        return False
    arguments = elements(node.value.args)
    return [getattr(argument, "value", None) for argument in arguments[:2]] == [ASSERT, 0]


def kernel_accesses(
    body: Node,
    params: Sequence[Node],
    symbols: Symbols,
    is_private: Callable[[int], bool],
    integers: KernelIntegers | None = None,
) -> tuple[tuple[KernelAccess, ...], tuple[KernelBuffer, ...], tuple[str, ...]]:
    """The loads and stores of `body`, in its order, its own buffers, and what of it is not read, as a Kernel
    has them; the extents and scalars of `params` are defined in `symbols`, and loops get symbols of their own
    there.  `is_private` tells, by its address, whether nothing but loads and stores touches a buffer;
    `integers` what is known of the elements of buffers.

    Each comes with its indices and the points at which it is executed.  Nothing is approximated: what has no
    exact form is said to be unknown (an index that is None, a domain that is not exact).
    """
    walk = _KernelWalk(body, params, symbols, is_private, integers or KernelIntegers(symbols))
    walk.statement(body, KernelScope())
    walk.integers.around = ()
    doubtful = [replace(access, exact=False) for access in walk.found[walk.certain :]]
    accesses = (*walk.found[: walk.certain], *doubtful)
    return accesses, tuple(walk.places.own), tuple(dict.fromkeys(walk.unread))


class _KernelWalk:
    """Follows the statements of a body in the order of their execution, and notes accesses in `found`."""

    def __init__(
        self,
        body: Node,
        params: Sequence[Node],
        symbols: Symbols,
        is_private: Callable[[int], bool],
        integers: KernelIntegers,
    ) -> None:
        self.symbols, self.integers, self.is_private = symbols, integers, is_private
        self.values = KernelValues(symbols, is_private, integers.load, body, params)
        self.places = BufferPlaces(params, self.values.extent)
        self.found: list[KernelAccess] = []
        self.certain = sys.maxsize  # the accesses from this one on may be skipped, nobody knows when
        self.outermost = 0  # the first access in the outermost loop
        self.inside: KernelScope | None = None  # the innermost loop
        self.breaks: list[Condition | None] = []  # the conditions under which one of its passes goes on
        self.leavings = 0
        self.unread: list[str] = []

    def statement(self, node: Node, scope: KernelScope) -> KernelScope:
        """Read a statement; return the scope of what follows it."""
        self.integers.around = scope.loops
        read = _STATEMENTS.get(type(node))
        if read is None:
            self.anything(node, scope)
            self.values.forget()
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
        counted = {} if node.kind in _SIDE_BY_SIDE else self.values.counted(node.body)
        self.values.forget_stored(node.body)  # C evaluates the extent before each pass
        self.read(node.min, scope)
        self.read(node.extent, scope)
        step = 1 if node.step is None else constant_extent(node.step) or 0
        first, extent = self.values.expr_or_none(node.min), self.values.expr_or_none(node.extent)
        passes = None if extent is None or step < 1 else ceildiv(extent, step)
        # TVM makes vectors of statements one by one: of none with a branch
        lanes = node.kind == tirx.ForKind.VECTORIZED
        lanes = lanes and not nodes_in([node.body], tirx.IfThenElse, tirx.While)
        loop = self._loop(scope, node.loop_var.name, passes, node.kind in _SIDE_BY_SIDE, lanes)
        value = None if first is None or step < 1 else symbol(loop.symbol) * step + first
        self.values.bind(node.loop_var, value, node.min)
        unread = passes is None and self._is_unread(node.extent, f"the passes of `{node.loop_var.name}`")
        self._passes(node.body, scope.inside(loop).where((), True, unread), counted)
        self.values.hold(counted, passes)

    def _loop(
        self, scope: KernelScope, name: str, passes: Expr | None, parallel: bool = True, lanes: bool = False
    ) -> KernelLoop:
        if not scope.loops:
            self.outermost = len(self.found)
        counter = self.symbols.new(name, Origin.LOOP)
        self.values.counts(counter, passes)
        return KernelLoop(symbol=counter, passes=passes, parallel=parallel, lanes=lanes)

    def _is_unread(self, node: Node, what: str) -> bool:
        """Note `what` if an expression without exact form hangs on no data."""
        if self.values.hangs_on_data(node):
            return False
        self.unread.append(what)
        return True

    def _where(self, scope: KernelScope, test: Node, holds: bool) -> KernelScope:
        """The scope where a test holds, or does not."""
        known, exact = self.values.guard(test, holds)
        return scope.where(known, exact, not exact and self._is_unread(test, "a condition on its counters"))

    def _passes(self, body: Node, scope: KernelScope, counted: Counted) -> None:
        """The body of a loop; accesses are told which passes are executed."""
        outer, first, leavings = (self.inside, self.breaks), len(self.found), self.leavings
        self.inside, self.breaks = scope, []
        with self.values.perhaps(body):
            self.values.hold(counted, symbol(scope.loops[-1].symbol))
            self.statement(body, scope)
        for stays in self.breaks:
            before = self.found[first:]
            self.found[first:] = [_gone_on(access, scope.loops[-1], stays) for access in before]
            if any(a.unread and not b.unread for a, b in zip(self.found[first:], before, strict=True)):
                self.unread.append("the passes before a `break`")
        (self.inside, self.breaks), self.leavings = outer, leavings

    def endless(self, node: Node, scope: KernelScope) -> None:
        self.read(node.condition, scope)  # once at least
        counted, loop = self.values.counted(node.body), self._loop(scope, "while_", None, parallel=False)
        self.values.forget_stored(node.body)
        self.values.hold(counted, symbol(loop.symbol))
        known, exact = self.values.guard(node.condition, holds=True)
        ends = [bounds_of(one, loop.symbol) for guard in known for one in guard.conjuncts]
        uppers = [end[1] for end in ends if end is not None and end[0] is None and end[1] is not None]
        passes = minimum(*uppers) + 1 if exact and len(uppers) == len(ends) else None
        loop = replace(loop, passes=passes)
        self.values.counts(loop.symbol, passes)
        inside = scope.inside(loop)
        self.read(node.condition, inside)
        unread = passes is None and self._is_unread(node.condition, "the passes of a `while`")
        self._passes(node.body, inside.where(known, True, unread), counted)
        self.values.hold(counted, passes)

    def attribute(self, node: Node, scope: KernelScope) -> None:
        if node.attr_key in _THREADS:
            self.read(node.value, scope)
            loop = self._loop(scope, node.node.var.name, self.values.expr_or_none(node.value))
            self.values.bind(node.node.var, symbol(loop.symbol))
            scope = scope.inside(loop)
        with self.values.perhaps(node.body):
            self._within(node.body, scope)

    def _within(self, body: Node, scope: KernelScope) -> None:
        """A body that others follow, whatever is left early inside."""
        before = self.leavings
        self.statement(body, scope)
        if self.leavings > before:
            self._may_end(scope)

    def _may_end(self, scope: KernelScope) -> None:
        """The kernel may end here, or a later pass of the outermost loop around may not be executed."""
        self.certain = min(self.certain, self.outermost if scope.loops else len(self.found))

    # -- branches and exits --------------------------------------------------------------------------------

    def branches(self, node: Node, scope: KernelScope) -> KernelScope | None:
        self.read(node.condition, scope)
        leavings = self.leavings
        with self.values.branch():
            then = self.statement(node.then_case, self._where(scope, node.condition, True))
        otherwise = self._where(scope, node.condition, False)
        if node.else_case is not None:
            otherwise = self.statement(node.else_case, otherwise)
        self.values.forget_stored(node)
        ended = self.leavings > leavings or then.is_unreached or otherwise.is_unreached
        return scope.behind(then, otherwise) if ended else None

    def leave(self, node: Node, scope: KernelScope) -> KernelScope:
        self.leavings += 1
        how = leaving(node)
        if how == "return" if self.inside else scope.loops:
            self._may_end(scope)
        elif how == "break" and self.inside:
            known = scope.exact and scope.loops == self.inside.loops
            self.breaks.append(negate(scope.beyond(self.inside)) if known else None)
        return scope.unreached

    def evaluate(self, node: Node, scope: KernelScope) -> KernelScope | None:
        self.read(node.value, scope)
        if complains(node):
            return scope.unreached
        return None if leaving(node) is None else self.leave(node, scope)

    def asserted(self, node: Node, scope: KernelScope) -> KernelScope:
        """Behind an assertion its condition holds, or nothing is executed."""
        self.read(node.condition, scope)
        return scope.where(self.values.guard(node.condition, holds=True)[0], True)

    # -- blocks --------------------------------------------------------------------------------------------

    def block(self, node: Node, scope: KernelScope) -> None:
        """A block: its axes bound, its predicate, its initialisation at the first step of a reduction."""
        block, values = node.block, []
        self.values.forget_stored(block)  # TVM puts the values of axes and regions where they are used
        for axis, bound in zip(elements(block.iter_vars), elements(node.iter_values), strict=True):
            self.read(bound, scope)
            values.append((axis, self.values.expr_or_none(bound), bound))
        self.read(node.predicate, scope)
        scope = self._where(scope, node.predicate, True)
        for axis, value, bound in values:
            self.values.bind(axis.var, value, bound)
        for buffer in elements(block.alloc_buffers):
            self._allocate(buffer, scope)
        for match in elements(block.match_buffers):
            self.places.match(match.buffer, match.source)
        if block.init is not None:
            steps = [value for axis, value, _ in values if axis.iter_type == tirx.IterVar.CommReduce]
            counters = frozenset[str]().union(*(value.symbols for value in steps if value))
            # a reduction goes through its steps in order, threads or not
            loops = [
                replace(one, parallel=one.parallel and one.symbol not in counters) for one in scope.loops
            ]
            scope = scope._replace(loops=tuple(loops))
            with self.values.perhaps(block.init):
                self.statement(block.init, self._at_first_step(values, scope))
        with nullcontext() if constant_extent(node.predicate) else self.values.perhaps(block.body):
            self._within(block.body, scope)

    def _at_first_step(
        self, axes: Sequence[tuple[Node, Expr | None, Node]], scope: KernelScope
    ) -> KernelScope:
        for axis, value, _ in axes:
            if axis.iter_type == tirx.IterVar.CommReduce:
                first = self.values.expr_or_none(axis.dom.min)
                known = (eq(value, first),) if value is not None and first is not None else ()
                scope = scope.where(known, bool(known))
        return scope

    # -- stores, and names ---------------------------------------------------------------------------------

    def store(self, node: Node, scope: KernelScope) -> None:
        for index in (node.value, *elements(node.indices)):
            self.read(index, scope)
        self.access("store", node.buffer, node, scope)
        if self.integers.holds(node.buffer):
            indices = tuple(map(self.values.expr_or_none, elements(node.indices)))
            self.integers.store(node.buffer, indices, self.values.number(node.value), scope)
        self.values.store(node, scope)

    def bound(self, node: Node, scope: KernelScope) -> None:
        if not self.places.name(node.var, node.value):
            self.read(node.value, scope)
            self.values.let(node.var, node.value)

    def declare(self, node: Node, scope: KernelScope) -> None:
        data = getattr(node, "data", None)
        if data is not None and not self.places.name(node.buffer, data, declares=True):
            self.read(data, scope)

    def _allocate(self, buffer: Node, scope: KernelScope) -> None:
        self.places.allocate(buffer, len(scope.loops))
        self.values.allocate(buffer, scope)
        if self.is_private(buffer.__chandle__()):
            self.integers.declare(buffer)

    # -- expressions ---------------------------------------------------------------------------------------

    def read(self, node: Node, scope: KernelScope) -> None:
        """Note the loads of an expression."""
        kind = type(node)
        if kind in _LITERALS:
            return
        note = _EXPRESSIONS.get(kind)
        if note is not None:
            note(self, node, scope)
            return
        parts = ("a", "b") if issubclass(kind, (prim.BinaryOpExpr, prim.CmpExpr)) else _PARTS.get(kind)
        if parts is None:
            self.anything(node, scope)
        for part in parts or ():
            self.read(getattr(node, part), scope)

    def _handed(self, place: Place | None, scope: KernelScope, kinds: Kinds, exact: bool = False) -> None:
        """Note that a callee may do `kinds` to any element, or does so to some if it is `exact`."""
        if place is not None and place.parameter < self.places.parameters:
            nowhere, within = (None,) * place.rank, scope._replace(exact=exact and scope.exact)
            self.found += (_accessed(kind, place, nowhere, within, handed=True) for kind in kinds)

    def anything(self, node: Node, scope: KernelScope, kinds: Kinds = _BOTH, exact: bool = False) -> None:
        """Take a construct that may do `kinds` to what it mentions, as far as is known."""
        places = (self.places.of(var) for var in nodes_in([node], ir.Var))
        seen: dict[int, Place] = {}
        for place in (one for one in places if one is not None):
            seen.setdefault(place.parameter, place)
        for place in seen.values():
            self._handed(place, scope, kinds, exact)

    def call(self, node: Node, scope: KernelScope) -> None:
        name = getattr(node.op, "name", None)
        arguments = elements(node.args)
        if name == "prim.if_then_else":
            self.chosen(node, scope)
        elif name == "tirx.tvm_access_ptr":
            self._pointer(arguments, scope)
        elif name == "tirx.tvm_call_packed":
            self._packed(arguments, scope)
        else:
            for argument in arguments:
                taken = name == "tirx.address_of" and type(argument) is ir.TensorLoad
                self.read(argument.source if taken else argument, scope)

    def _pointer(self, arguments: Sequence[Node], scope: KernelScope) -> None:
        """A pointer with a mask that says what its holder does through it."""
        mask = constant_extent(arguments[4]) if len(arguments) > 4 else None
        self.anything(arguments[1], scope, _CONTRACTS.get(mask or 0, _BOTH))
        for argument in arguments[2:4]:
            self.read(argument, scope)

    def _packed(self, arguments: Sequence[Node], scope: KernelScope) -> None:
        """A call of a packed function, whose effects are known, or it may do anything to its arguments."""
        known = packed_contract(arguments[0].value) if type(arguments[0]) is ir.StringImm else None
        for number, argument in enumerate(arguments[1:]):
            kinds: Kinds = _BOTH
            if known is not None and known.writes is not None:
                kinds = ("store",) if number in known.defines else () if number in known.writes else ("load",)
            if kinds is _BOTH or type(argument) is not ir.Call:
                self.read(argument, scope)
            else:
                self.anything(argument, scope, kinds or _BOTH, kinds == ("load",))

    # -- what is loaded on a condition ---------------------------------------------------------------------

    def chosen(self, node: Node, scope: KernelScope) -> None:
        """TVM makes a select that loads an if_then_else, so that it loads from one side only."""
        choice = choice_of(node)
        if choice is not None:
            self.read(choice[0], scope)
            self._guarded(choice[1], choice[0], True, scope)
            self._guarded(choice[2], choice[0], False, scope)

    def _guarded(self, node: Node, test: Node, holds: bool, scope: KernelScope) -> None:
        if type(node) not in _LITERALS:
            self.read(node, self._where(scope, test, holds))

    def both(self, node: Node, scope: KernelScope) -> None:
        """The right side of `and` and `or` matters where the left side leaves it open; LLVM computes both."""
        self.read(node.a, scope)
        self._guarded(node.b, node.a, type(node) is prim.And, scope)
        if nodes_in([node.b], ir.TensorLoad):
            first = len(self.found)
            self.read(node.b, scope)
            touched = [replace(one, kind="touch") for one in self.found[first:] if None not in one.indices]
            self.found[first:] = touched

    def let(self, node: Node, scope: KernelScope) -> None:
        self.read(node.value, scope)
        self.values.let(node.var, node.value)
        self.read(node.body, scope)

    # -- accesses ------------------------------------------------------------------------------------------

    def load(self, node: Node, scope: KernelScope) -> None:
        for index in elements(node.indices):
            self.read(index, scope)
        self.access("load", node.source, node, scope)

    def access(self, kind: AccessKind, buffer: Node, node: Node, scope: KernelScope) -> None:
        """Note a load or a store of a known buffer."""
        place = self.places.of(buffer)
        if place is None:
            return
        if getattr(node, "predicate", None) is not None:
            scope = scope._replace(exact=False)
        copies = tuple(self._copied(node.value, KernelScope(loops=scope.loops)) if kind == "store" else ())
        indices = []
        for index in elements(node.indices):
            value = self.values.expr_or_none(index)
            if type(index) is prim.Ramp:
                scope, value = self._lanes(index, scope)
            if value is None and self._is_unread(index, f"an index of `{buffer.name}`"):
                scope = scope._replace(unread=True)
            indices.append(value)
        if place.wide > 1:
            scope, lane = self._lane(scope, place.wide)
            indices.append(lane)
        self.found.append(_accessed(kind, place, indices, scope, copies=copies))

    def _copied(self, value: Node, scope: KernelScope) -> Iterator[KernelAccess]:
        """The loads that a stored value is, unchanged, each with the conditions of the choices before it."""
        choice = choice_of(value)
        if type(value) is ir.TensorLoad:
            place = self.places.of(value.source)
            whole = place is not None and place.wide == place.parts == 1
            if place is not None and whole and getattr(value, "predicate", None) is None:
                indices = [self.values.expr_or_none(index) for index in elements(value.indices)]
                yield _accessed("load", place, indices, scope)
        elif choice is not None:
            for side, holds in ((choice[1], True), (choice[2], False)):
                within = scope.where(*self.values.guard(choice[0], holds))
                if within.exact:
                    yield from self._copied(side, within)

    def _lanes(self, ramp: Node, scope: KernelScope) -> tuple[KernelScope, Expr | None]:
        """The lanes of a vector as a loop of their own."""
        lanes = ramp.lanes if isinstance(ramp.lanes, int) else getattr(ramp.lanes, "value", None)
        base, stride = self.values.expr_or_none(ramp.base), self.values.expr_or_none(ramp.stride)
        scope, lane = self._lane(scope, lanes)
        return scope, None if base is None or stride is None else base + stride * lane

    def _lane(self, scope: KernelScope, lanes: int | None) -> tuple[KernelScope, Expr]:
        loop = self._loop(scope, "lane", None if lanes is None else constant(lanes), lanes=True)
        return scope.inside(loop), symbol(loop.symbol)


def _gone_on(access: KernelAccess, loop: KernelLoop, stays: Condition | None) -> KernelAccess:
    """An access in `loop`, which a pass leaves where `stays` does not hold: it is exact behind the break, if
    that `stays` holds there says that no pass before has left the loop.
    """
    domain, exact = list(access.domain), access.exact and stays is not None
    for part in () if stays is None else stays.conjuncts:
        held = _held_so_far(part, loop) if part in domain and not loop.parallel else None
        exact = exact and held is not None
        if held is not None:
            domain[domain.index(part)] = held
    unread = access.unread or (access.exact and stays is not None and not exact)
    return replace(access, domain=tuple(domain), exact=exact, unread=unread)


def _held_so_far(condition: Condition, loop: KernelLoop) -> Condition | None:
    """The condition that `condition` has held up to this pass; None where it has no plain form."""
    if not isinstance(condition, Relation):
        return None
    count = symbol(loop.symbol)
    rate = condition.expr.terms.get(next(iter(count.terms)), 0)
    if loop.symbol in (condition.expr - count * rate).symbols:
        return None
    if condition.operator == "<=":
        return condition if rate >= 0 else None
    if condition.operator != "!=" or rate not in (1, -1):
        return None
    hit = (count * rate - condition.expr) * rate
    return disjunction((lt(count, hit), lt(hit, 0)))


def _accessed(
    kind: AccessKind, place: Place, indices: Sequence[Expr | None], scope: KernelScope, **more: Any
) -> KernelAccess:
    found, part = place.at(tuple(indices))
    return KernelAccess(
        parameter=place.parameter,
        kind=kind,
        indices=found,
        domain=scope.domain,
        exact=scope.exact,
        loops=scope.loops,
        part=part,
        unread=scope.unread,
        **more,
    )


_LITERALS = frozenset({prim.IntImm, prim.FloatImm, ir.StringImm})
_PARTS: Mapping[type, tuple[str, ...]] = {
    prim.Not: ("a",),
    prim.Cast: ("value",),
    prim.Broadcast: ("value",),
    prim.Ramp: ("base", "stride"),
}
"""The expressions within an expression that does nothing to buffers itself."""
_EXPRESSIONS: Mapping[type, Callable[[_KernelWalk, Node, KernelScope], None]] = {
    # a buffer is handed to somebody here
    ir.Var: lambda walk, node, scope: walk._handed(walk.places.of(node), scope, _BOTH),
    ir.TensorLoad: _KernelWalk.load,
    ir.Call: _KernelWalk.call,
    prim.Select: _KernelWalk.chosen,
    prim.And: _KernelWalk.both,
    prim.Or: _KernelWalk.both,
    prim.Let: _KernelWalk.let,
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
    tirx.Return: _KernelWalk.evaluate,
    tirx.Bind: _KernelWalk.bound,
    tirx.DeclBuffer: _KernelWalk.declare,
    tirx.AssertStmt: _KernelWalk.asserted,
    tirx.AllocBuffer: lambda walk, node, scope: walk._allocate(node.buffer, scope),
    tirx.Break: _KernelWalk.leave,
    tirx.Continue: _KernelWalk.leave,
}

"""A PrimFunc as its callers see it: its parameters, and the buffers that its body reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache, partial

from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.buffer import BufferType

from symalloc.program.ir import BufferLayout, Kernel, KernelBuffer, KernelLoop, KernelScalar, Origin
from symalloc.program.record import DeferredTuple
from symalloc.program.types import DType
from symalloc.relax.extract.buffer_accesses import BufferAccesses, buffer_accesses
from symalloc.relax.extract.covers import constant_extent, covered
from symalloc.relax.extract.kernel_exits import (
    KernelAccesses,
    KernelScope,
    LoopFrame,
    UnknownExit,
    leaving,
    without_skipped,
)
from symalloc.relax.extract.kernel_expressions import KernelExpressions
from symalloc.relax.extract.kernel_values import KernelValues
from symalloc.relax.extract.symbols import Symbols
from symalloc.relax.extract.tir_form import NotASizeError, TirForm
from symalloc.relax.extract.type_conversion import to_dtype
from symalloc.relax.ir_types import Node, TypeNode, VarNode, elements
from symalloc.size.condition import Condition, eq
from symalloc.size.expr import Expr, ceildiv, symbol

_SIDE_BY_SIDE = frozenset({tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.THREAD_BINDING})
_THREADS = frozenset({"thread_extent", "virtual_thread"})


def kernel_accesses(function: Node, symbols: Symbols) -> KernelAccesses:
    """The loads and stores of `function`, in its order; its extents and scalars are defined in `symbols`, and
    loops get symbols of their own there.

    Each comes with its indices and the points at which it is executed.  Nothing is approximated: what has no
    exact form is said to be unknown (an index that is None, a domain that is not exact).
    """
    walk = _AccessWalk(function, symbols)
    walk.statement(function.body, KernelScope())
    found, places = without_skipped(walk.found, walk.exits), walk.expressions.places
    return KernelAccesses(
        of_parameters=tuple(access for access in found if not places.is_own(access.parameter)),
        of_own=tuple(access for access in found if places.is_own(access.parameter)),
        own=tuple(places.own),
    )


class _AccessWalk:
    """Follows the statements of a body in the order of their execution."""

    def __init__(self, function: Node, symbols: Symbols) -> None:
        self.symbols = symbols
        self.values = KernelValues(symbols, function)
        self.scalars = self.values.scalars
        self.expressions = KernelExpressions(function.params, self.values)
        self.found = self.expressions.found
        self.read = self.expressions.read
        self.exits: list[UnknownExit] = []
        self.frames = [LoopFrame(None, 0)]
        self.leavings = 0

    def statement(self, node: Node, scope: KernelScope) -> KernelScope:
        """Read a statement; return the scope of what follows it."""
        read = _STATEMENTS.get(type(node))
        if read is None:
            self.expressions.anything(node, scope)
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
        places = self.expressions.places
        for buffer in elements(block.alloc_buffers):
            self._allocate(buffer, scope)
        for match in elements(block.match_buffers):
            places.match(match.buffer, match.source)
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
        self.expressions.access("store", node.buffer, node, scope, self.expressions.copied(node.value, scope))
        if self.scalars.follows(node.buffer):
            self.scalars.store(node, self.values.expr_or_none(node.value), scope)

    def bound(self, node: Node, scope: KernelScope) -> None:
        if self.expressions.places.alias(node.var, node.value):
            return
        self.read(node.value, scope)
        self.values.let(node.var, node.value)

    def declare(self, node: Node, scope: KernelScope) -> None:
        data = getattr(node, "data", None)
        if data is not None and not self.expressions.places.declare(node.buffer, data):
            self.read(data, scope)

    def allocated(self, node: Node, scope: KernelScope) -> None:
        self._allocate(node.buffer, scope)

    def _allocate(self, buffer: Node, scope: KernelScope) -> None:
        self.expressions.places.allocate(buffer)
        self.scalars.allocate(buffer, scope)


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


def extract_kernel(name: str, function: Node) -> Kernel:
    """The kernel; extents and indices are expressions over the kernel's own symbols.

    A bare pointer parameter has neither shape nor dtype, and counts as read and written.  A PrimFunc is read
    once, however many stages of a module hold it; its accesses, which take most of that and which no plan
    needs, when they are asked for.
    """
    return _read(_Text(function), name)


class _Text:
    """The text of a kernel, its attributes aside: the same where body and parameters are the same objects."""

    __slots__ = ("function", "key")

    def __init__(self, function: Node) -> None:
        nodes = (function.body, *elements(function.params))
        self.function, self.key = function, tuple([node.__chandle__() for node in nodes])

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Text) and self.key == other.key


@lru_cache(maxsize=1024)
def _read(text: _Text, name: str) -> Kernel:
    function = text.function
    symbols = Symbols()
    form = TirForm(symbols.resolve, nonnegative=symbols.is_size)
    params = elements(function.params)
    for param in params:
        _define(param, symbols)
    accesses = buffer_accesses(function.body)
    covering = accesses.stores and not accesses.leaves_early
    in_full = covered(function.body) if covering else set[int]()
    parameters = tuple(_parameter(param, form, symbols, accesses, in_full) for param in params)
    asserts = tuple(_asserted(function.body, form))
    undefined = frozenset(n for n, origin in symbols.origins.items() if origin is Origin.UNDEFINED)
    body = cache(partial(kernel_accesses, function, symbols))
    return Kernel(
        name=name,
        parameters=parameters,
        undefined=undefined,
        asserts=asserts,
        accesses=DeferredTuple(lambda: body().of_parameters),
        own_buffers=DeferredTuple(lambda: body().own),
        own_accesses=DeferredTuple(lambda: body().of_own),
        negates=_negates(function.body, params),
    )


def _negates(body: Node, params: list[Node]) -> tuple[int, int] | None:
    """The numbers of two flags, if a kernel only stores the negation of the first in the second."""
    if len(params) != 2 or any(type(p.ty) is not BufferType or len(p.ty.shape) for p in params):
        return None
    while type(body) is s_tir.SBlockRealize:
        body = body.block.body
    if type(body) is not tirx.BufferStore or type(body.value) is not prim.Not:
        return None
    if type(body.value.a) is not ir.TensorLoad:
        return None
    loaded, stored = body.value.a.source, body.buffer
    found = [n for buffer in (loaded, stored) for n, p in enumerate(params) if buffer.same_as(p)]
    return (found[0], found[1]) if len(found) == 2 and found[0] != found[1] else None


def _asserted(body: Node, form: TirForm) -> Iterator[Condition]:
    """The conditions of assertions that stand at the top of the body, where those are about sizes."""
    for statement in body.seq if type(body) is tirx.SeqStmt else (body,):
        if type(statement) is tirx.AssertStmt:
            try:
                yield form.condition(statement.condition)
            except NotASizeError:
                continue


def _define(param: Node, symbols: Symbols) -> None:
    type_ = param.ty
    if type(type_) is ir.PrimType:
        symbols.define(param, Origin.SCALAR)
    elif type(type_) is BufferType:
        for extent in elements(type_.shape):
            if type(extent) is ir.Var:
                symbols.define(extent, Origin.DIMENSION)


def _parameter(
    param: Node, form: TirForm, symbols: Symbols, accesses: BufferAccesses, in_full: set[int]
) -> KernelBuffer | KernelScalar:
    type_ = param.ty
    if type(type_) is ir.PrimType:
        return KernelScalar(name=symbols.resolve(param).as_symbol or param.name)
    if type(type_) is not BufferType:
        return KernelBuffer(name=param.name, shape=None, dtype=None)
    reads, writes = accesses.of(param)
    written_only = writes and not reads
    return KernelBuffer(
        name=param.name,
        shape=_extents(type_.shape, form),
        dtype=_buffer_dtype(type_.dtype),
        reads=reads,
        writes=writes,
        must_def=written_only and param.__chandle__() in in_full,
        offset_factor=_offset_factor(type_),
        layout=_layout(type_, symbols),
    )


def _extents(shape: Node, form: TirForm) -> tuple[Expr, ...] | None:
    try:
        return tuple(form.expr(extent) for extent in elements(shape))
    except NotASizeError:
        return None


def _buffer_dtype(type_: TypeNode) -> DType | None:
    return to_dtype(type_.dtype)


def _offset_factor(type_: TypeNode) -> int | None:
    """None for a buffer that must start at byte 0 of its allocation; a free offset is bound by the caller."""
    return max(int(type_.offset_factor), 1) if type(type_.elem_offset) is ir.Var else None


def _layout(type_: TypeNode, symbols: Symbols) -> BufferLayout | None:
    """The layout of a buffer that says more than that it is row-major."""

    def known(var: VarNode) -> Expr:
        found = symbols.known(var)
        if found is None:
            raise NotASizeError(f"`{var.name}` is what the caller brings")
        return found

    form = TirForm(known)
    offset = None if type(type_.elem_offset) is ir.Var else constant_extent(type_.elem_offset)
    if not len(type_.strides) and (offset == 0 or type(type_.elem_offset) is ir.Var):
        return None
    strides = tuple(map(form.expr_or_none, elements(type_.strides))) if len(type_.strides) else None
    return BufferLayout(elem_offset=offset, strides=strides)

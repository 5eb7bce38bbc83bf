"""A PrimFunc as its callers see it: its parameters, and the buffers that its body reads and writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial

from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.buffer import BufferType

from symalloc.program.ir import BufferLayout, Kernel, KernelAccess, KernelBuffer, KernelScalar, Origin
from symalloc.program.types import DeferredTuple
from symalloc.relax.extract.kernel_integers import Integers, KernelIntegers
from symalloc.relax.extract.kernel_walk import LEAVING, complains, kernel_accesses
from symalloc.relax.extract.tir_to_expr import (
    TRANSPARENT,
    NotASizeError,
    Symbols,
    TirToExpr,
    all_known,
    numbers_of,
    to_dtype,
)
from symalloc.relax.ir_types import Node, TypeNode, VarNode, constant_extent, elements, same_extent, visit
from symalloc.size.condition import Condition, negate
from symalloc.size.expr import Expr

_PURE = TRANSPARENT | {"prim.if_then_else"}
_ELSEWHERE = frozenset({"tirx.tvm_call_packed", "tirx.tvm_call_cpacked", "tirx.call_extern"})


@dataclass(slots=True)
class BufferAccesses:
    """Counts of the loads, stores, declarations and mentions of each buffer variable, by address.

    `exposed` are those whose element's address is taken, `passed` those of which an element is passed to a
    call: some store to what they are passed.  `leaves_early`: a loop may be left early.  `others` names the
    functions that are called and not seen.
    """

    loads: Counter[int] = field(default_factory=Counter)
    stores: Counter[int] = field(default_factory=Counter)
    declared: Counter[int] = field(default_factory=Counter)
    mentions: Counter[int] = field(default_factory=Counter)
    exposed: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)
    leaves_early: bool = False
    others: dict[str, None] = field(default_factory=dict)

    def of(self, param: Node) -> tuple[bool, bool]:
        """(reads, writes).  A mention that is no load, store or declaration may do both."""
        key = param.__chandle__()
        if not self.only_accessed(key):
            return True, True
        return self.loads[key] > 0, self.stores[key] > 0

    def only_accessed(self, key: int) -> bool:
        """Return whether the body only loads and stores the buffer, and hands its pointer to nobody."""
        plain = self.loads[key] + self.stores[key] + self.declared[key]
        return key not in self.exposed and self.mentions[key] == plain

    def is_private(self, key: int) -> bool:
        """Return whether the body only loads and stores the buffer, and passes no element to a call."""
        return key not in self.passed and self.only_accessed(key)

    def block(self, node: Node) -> None:
        """The regions that a block declares are no accesses; its body holds those."""
        regions = (region.source for region in (*elements(node.reads), *elements(node.writes)))
        _count(self.declared, *regions, *elements(node.alloc_buffers))

    def call(self, node: Node) -> None:
        """The address of an element lets the callee do anything to the buffer."""
        name = getattr(node.op, "name", None)
        if name not in _PURE:
            self.leaves_early |= name in LEAVING
            loads = {a.source.__chandle__() for a in elements(node.args) if type(a) is ir.TensorLoad}
            self.passed |= loads
            self.exposed |= loads if name == "tirx.address_of" else set()
        if name in _ELSEWHERE:
            self.others[str(getattr(node.args[0], "value", "a function"))] = None

    def leave(self, node: Node) -> None:
        """A return, a break, a loop that goes on as long as it likes."""
        self.leaves_early = True


def _count(counter: Counter[int], *nodes: Node) -> None:
    counter.update([node.__chandle__() for node in nodes])


@lru_cache(maxsize=1024)
def buffer_accesses(body: Node) -> BufferAccesses:
    """The accesses in the body of a PrimFunc; kept, for extraction and emission both ask for them."""
    found = BufferAccesses()
    loads, stores, allocated, mentions = [list[Node]() for _ in range(4)]
    visit(
        body,
        (ir.TensorLoad, loads.append),
        (tirx.BufferStore, stores.append),
        (s_tir.SBlock, found.block),
        (tirx.AllocBuffer, allocated.append),
        (ir.Call, found.call),
        (ir.Var, mentions.append),
        *((statement, found.leave) for statement in (tirx.Return, tirx.Break, tirx.Continue, tirx.While)),
    )
    _count(found.loads, *(load.source for load in loads))
    _count(found.stores, *(store.buffer for store in stores))
    _count(found.declared, *(node.buffer for node in allocated))
    _count(found.mentions, *mentions)
    return found


_PLAIN_LOOPS = frozenset(
    {tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED}
)


def _covered(statement: Node, extents: Mapping[int, Node], axes: Mapping[int, Node]) -> Iterator[int]:
    """The addresses of the buffers that a statement stores to at every index under nothing but loops from 0
    on, provided that nothing leaves a loop early.

    `extents` holds the extent of each loop around it by the address of its variable; `axes` what a block's
    axis stands for, by its address: a loop variable or a constant.
    """
    match statement:
        case tirx.BufferStore() if _is_full(statement, dict(extents), axes):
            yield statement.buffer.__chandle__()
        case tirx.SeqStmt():
            for inner in elements(statement.seq):
                yield from _covered(inner, extents, axes)
        case tirx.For(step=None) if statement.kind in _PLAIN_LOOPS and constant_extent(statement.min) == 0:
            around = {**extents, statement.loop_var.__chandle__(): statement.extent}
            yield from _covered(statement.body, around, axes)
        case s_tir.SBlockRealize() if constant_extent(statement.predicate) == 1:
            block = statement.block
            bound = zip(elements(block.iter_vars), elements(statement.iter_values), strict=True)
            known = {axis.var.__chandle__(): _resolved(value, axes) for axis, value in bound}
            yield from _covered(block.body, extents, {**axes, **known})


def _is_full(store: Node, unused: dict[int, Node], axes: Mapping[int, Node]) -> bool:
    """Return whether the loops around a store run through all of its buffer, and any other loop runs."""
    kind = store.buffer.ty
    indices, shape = elements(store.indices), elements(kind.shape)
    if len(kind.strides) or len(indices) != len(shape):
        return False
    for index, extent in zip(indices, shape, strict=True):
        place = _resolved(index, axes)
        if constant_extent(place) == 0 and constant_extent(extent) == 1:
            continue
        looped = unused.pop(place.__chandle__(), None) if type(place) is ir.Var else None
        if looped is None or not same_extent(looped, extent):
            return False
    return all((constant_extent(extent) or 0) >= 1 for extent in unused.values())


def _resolved(value: Node, axes: Mapping[int, Node]) -> Node:
    return axes.get(value.__chandle__(), value) if type(value) is ir.Var else value


def extract_kernel(name: str, function: Node) -> Kernel:
    """The kernel; extents and indices are expressions over the kernel's own symbols.

    A bare pointer parameter has neither shape nor dtype, and counts as read and written.  A PrimFunc is read
    once, however many stages of a module hold it; its accesses, which take most of that and which no plan
    needs, when they are asked for.
    """
    return _read(function.body, tuple(elements(function.params)), name)


@lru_cache(maxsize=1024)
def _read(body: Node, params: tuple[Node, ...], name: str) -> Kernel:
    symbols = parameter_symbols(params)
    form = TirToExpr(symbols.resolve, nonnegative=symbols.is_size)
    accesses = buffer_accesses(body)
    in_full = set() if accesses.leaves_early else set(_covered(body, {}, {}))
    parameters = tuple(_parameter(param, form, symbols, accesses, in_full) for param in params)
    asserts = tuple(_asserted(body, form))
    found = cache(partial(kernel_accesses, body, params, symbols, accesses.is_private))
    return Kernel(
        name=name,
        parameters=parameters,
        asserts=asserts,
        accesses=DeferredTuple(lambda: found()[0]),
        own_buffers=DeferredTuple(lambda: found()[1]),
        unread=DeferredTuple(lambda: found()[2]),
        negates=_negates(body, params),
        others=tuple(accesses.others),
        narrow={n: r for n, v in symbols.variables.items() if 0 < (r := numbers_of(v.ty.dtype)).stop < 2**31},
    )


def follow_kernel(
    function: Node, given: tuple[tuple[int, Integers], ...]
) -> tuple[tuple[KernelAccess, ...], Mapping[int, Integers]]:
    """The accesses of a kernel at indices that integers tell which parameters hold, `given` by number, and
    the integers that it stores to others.
    """
    return _followed(function.body, tuple(elements(function.params)), given)


@lru_cache(maxsize=256)
def _followed(
    body: Node, params: tuple[Node, ...], given: tuple[tuple[int, Integers], ...]
) -> tuple[tuple[KernelAccess, ...], Mapping[int, Integers]]:
    symbols, accesses, values = parameter_symbols(params), buffer_accesses(body), dict(given)
    integers = KernelIntegers(symbols, following=True)
    buffers = {n: p for n, p in enumerate(params) if type(p.ty) is BufferType}
    for number, param in buffers.items():
        if accesses.is_private(param.__chandle__()):
            integers.declare(param, values.get(number))
    if accesses.leaves_early:
        return (), {}
    found, _, _ = kernel_accesses(body, params, symbols, accesses.is_private, integers)
    stored = ((number, integers.content(param)) for number, param in buffers.items() if number not in values)
    return (
        tuple(one for access in found for one in integers.followed(access)),
        {number: content for number, content in stored if content is not None},
    )


def parameter_symbols(params: Sequence[Node]) -> Symbols:
    """The symbols that the parameters of a PrimFunc define, by the names that its kernel has for them."""
    symbols = Symbols()
    for param in params:
        if type(param.ty) is ir.PrimType:
            symbols.define(param, Origin.SCALAR)
        for extent in elements(param.ty.shape) if type(param.ty) is BufferType else ():
            if type(extent) is ir.Var:
                symbols.define(extent, Origin.DIMENSION)
    return symbols


def _negates(body: Node, params: Sequence[Node]) -> tuple[int, int] | None:
    """The numbers of two flags, if a kernel only stores the negation of the first in the second."""
    if len(params) != 2 or any(type(p.ty) is not BufferType or len(p.ty.shape) for p in params):
        return None
    while type(body) is s_tir.SBlockRealize:
        body = body.block.body
    if type(body) is not tirx.BufferStore or type(body.value) is not prim.Not:
        return None
    loaded = body.value.a.source if type(body.value.a) is ir.TensorLoad else body.value.a
    found = [n for buffer in (loaded, body.buffer) for n, p in enumerate(params) if buffer.same_as(p)]
    return (found[0], found[1]) if len(found) == 2 and found[0] != found[1] else None


def _asserted(body: Node, form: TirToExpr) -> Iterator[Condition]:
    """The conditions of assertions that stand at the top of the body, where those are about sizes."""
    while type(body) is s_tir.SBlockRealize and constant_extent(body.predicate) == 1:
        body = body.block.body
    for statement in body.seq if type(body) is tirx.SeqStmt else (body,):
        with suppress(NotASizeError):
            if type(statement) is tirx.AssertStmt:
                yield form.condition(statement.condition)
            elif type(statement) is tirx.IfThenElse and complains(statement.then_case):
                yield negate(form.condition(statement.condition))


def _parameter(
    param: Node, form: TirToExpr, symbols: Symbols, accesses: BufferAccesses, in_full: set[int]
) -> KernelBuffer | KernelScalar:
    type_ = param.ty
    if type(type_) is ir.PrimType:
        return KernelScalar(name=symbols.resolve(param).as_symbol or param.name)
    if type(type_) is not BufferType:
        return KernelBuffer(name=param.name, shape=None, dtype=None)
    reads, writes = accesses.of(param)
    # a buffer must start at byte 0 of its allocation, but for one whose free offset the caller binds
    free = type(type_.elem_offset) is ir.Var
    return KernelBuffer(
        name=param.name,
        shape=all_known(map(form.expr_or_none, elements(type_.shape))),
        dtype=to_dtype(type_.dtype.dtype),
        reads=reads,
        writes=writes,
        must_def=writes and not reads and param.__chandle__() in in_full,
        offset_factor=max(int(type_.offset_factor), 1) if free else None,
        layout=_layout(type_, symbols),
    )


def _layout(type_: TypeNode, symbols: Symbols) -> BufferLayout | None:
    """The layout of a buffer that says more than that it is row-major."""

    def known(var: VarNode) -> Expr:
        found = symbols.known(var)
        if found is None:
            raise NotASizeError(f"`{var.name}` is what the caller brings")
        return found

    offset = constant_extent(type_.elem_offset)
    if not len(type_.strides) and (offset == 0 or type(type_.elem_offset) is ir.Var):
        return None
    strides = tuple(map(TirToExpr(known).expr_or_none, elements(type_.strides)))
    return BufferLayout(elem_offset=offset, strides=strides or None)

"""Loads and stores in the expressions of a kernel's body, and what it hands to callees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tvm import ir
from tvm.ir.prim import expr as prim
from tvm.tirx.buffer import BufferType

from symalloc.program.ir import KernelAccess, KernelBuffer, KernelLoop
from symalloc.program.tvm_functions import packed_function
from symalloc.relax.extract.covers import constant_extent, same_extent
from symalloc.relax.extract.kernel_exits import KernelScope
from symalloc.relax.extract.kernel_values import KernelValues
from symalloc.relax.extract.type_conversion import to_dtype
from symalloc.relax.ir_types import Node, TypeNode, elements, visit
from symalloc.size.expr import ZERO, Expr, constant, floordiv, mod, product, symbol

Indices: TypeAlias = tuple[Expr | None, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A buffer on the memory of a parameter, and its indices as those of the parameter."""

    parameter: int
    type: TypeNode
    translate: Callable[[Indices], Indices]


class BufferPlaces:
    """Tells which buffers lie on which parameter; `expr` gives the exact form of an extent or an index.

    Buffers of the kernel's own are numbered behind the parameters; `own` holds them.
    """

    def __init__(self, params: Node, expr: Callable[[Node], Expr | None]) -> None:
        self._expr = expr
        self._parameters = len(params)
        self.own: list[KernelBuffer] = []
        self._ranks: dict[int, int] = {}
        self._places: dict[int, _Place] = {}
        for number, param in enumerate(elements(params)):
            type_ = param.ty
            if type(type_) is BufferType:
                self._ranks[number] = len(type_.shape)
                self._places[param.__chandle__()] = _Place(number, type_, lambda indices: indices)
            elif type(type_) is not ir.PrimType:
                self._ranks[number] = 1
                self._places[param.__chandle__()] = _Place(number, type_, lambda _: (None,))

    def has(self, buffer: Node) -> bool:
        """Return whether `buffer` lies on a parameter."""
        return buffer.__chandle__() in self._places

    def parameter(self, buffer: Node) -> int:
        """The number of the parameter that `buffer` lies on."""
        return self._places[buffer.__chandle__()].parameter

    def is_own(self, parameter: int) -> bool:
        """Return whether a number stands for a buffer of the kernel's own."""
        return parameter >= self._parameters

    def allocate(self, buffer: Node) -> None:
        """Note a buffer that the kernel allocates here."""
        number, type_ = self._parameters + len(self.own), buffer.ty
        extents = tuple(self._expr(extent) for extent in elements(type_.shape))
        known = tuple(extent for extent in extents if extent is not None)
        shape = known if len(known) == len(extents) else None
        self.own.append(KernelBuffer(name=buffer.name, shape=shape, dtype=to_dtype(type_.dtype.dtype)))
        self._ranks[number] = len(extents)
        self._places[buffer.__chandle__()] = _Place(number, type_, lambda indices: indices)

    def no_indices(self, parameter: int) -> Indices:
        """Indices of a parameter of which nothing is known."""
        return (None,) * self._ranks[parameter]

    def indices(self, buffer: Node, indices: Indices) -> Indices:
        """`indices` of `buffer` as those of the parameter that it lies on."""
        place = self._places[buffer.__chandle__()]
        found = place.translate(indices)
        rank = self._ranks[place.parameter]
        return found if len(found) == rank else (None,) * rank

    def alias(self, var: Node, value: Node) -> bool:
        """Note that a pointer is another name of a parameter's; False where `value` is none."""
        source = self._source(value)
        if source is not None:
            self._places[var.__chandle__()] = source
        return source is not None

    def declare(self, buffer: Node, data: Node) -> bool:
        """Note a buffer that is declared on a pointer; False where that is not a parameter's."""
        source = self._source(data)
        if source is not None:
            translate = self._between(buffer.ty, source)
            self._places[buffer.__chandle__()] = _Place(source.parameter, source.type, translate)
        return source is not None

    def match(self, buffer: Node, region: Node) -> None:
        """Note a buffer that stands for a region of another."""
        source = self._places.get(region.source.__chandle__())
        if source is None:
            return
        firsts = tuple(self._expr(part.min) for part in elements(region.region))
        extents = [constant_extent(part.extent) for part in elements(region.region)]
        missing = len(firsts) - len(buffer.ty.shape)
        fits = missing >= 0 and all(extent == 1 for extent in extents[:missing])

        def translate(indices: Indices) -> Indices:
            if not fits or len(indices) + missing != len(firsts):
                return source.translate((None,) * len(firsts))
            moved = zip(firsts, (*(ZERO,) * missing, *indices), strict=True)
            return source.translate(tuple(None if a is None or b is None else a + b for a, b in moved))

        self._places[buffer.__chandle__()] = _Place(source.parameter, source.type, translate)

    def _source(self, data: Node) -> _Place | None:
        if type(data) is ir.Call and getattr(data.op, "name", None) == "tirx.buffer_data":
            data = data.args[0]
        return self._places.get(data.__chandle__()) if type(data) is ir.Var else None

    def _between(self, type_: TypeNode, source: _Place) -> Callable[[Indices], Indices]:
        """The way from indices of a buffer of `type_` to those of the parameter, from the same pointer."""
        rank, target = self._ranks[source.parameter], source.type
        if type(target) is not BufferType or target.dtype != type_.dtype:
            return lambda _: (None,) * rank
        if not (_is_compact(type_) and _is_compact(target)):
            return lambda _: (None,) * rank
        if len(type_.shape) == rank and all(map(same_extent, type_.shape, target.shape)):
            return lambda indices: indices
        inner = [self._expr(extent) for extent in list(type_.shape)[1:]]
        outer = [self._expr(extent) for extent in list(target.shape)[1:]]
        return lambda indices: _unfolded(_folded(indices, inner), outer)


def _is_compact(type_: TypeNode) -> bool:
    """Return whether a buffer is row-major from its pointer on."""
    return not len(type_.strides) and constant_extent(type_.elem_offset) == 0


def _folded(indices: Indices, inner: list[Expr | None]) -> Expr | None:
    """The number of the element at `indices` of a buffer with the `inner` extents behind the first one."""
    if len(indices) != len(inner) + 1:
        return ZERO if not indices else None
    found = indices[0]
    for index, extent in zip(indices[1:], inner, strict=True):
        if found is None or index is None or extent is None:
            return None
        found = found * extent + index
    return found


def _unfolded(number: Expr | None, inner: list[Expr | None]) -> Indices:
    """The indices of element `number`, where the divisions by extents are plain."""
    known = [extent for extent in inner if extent is not None and (extent.as_constant or 0) >= 1]
    if number is None or len(known) != len(inner):
        return (None,) * (len(inner) + 1)
    sizes = [product(known[axis:]) for axis in range(len(known) + 1)]
    first = floordiv(number, sizes[0])
    return first, *(floordiv(mod(number, sizes[i]), sizes[i + 1]) for i in range(len(known)))


AccessKind: TypeAlias = Literal["load", "store"]
_BOTH: tuple[AccessKind, ...] = ("load", "store")
_CONTRACTS: Mapping[int, tuple[AccessKind, ...]] = {1: ("load",), 2: ("store",)}
"""The kinds of accesses by the mask of `tvm_access_ptr`."""


class KernelExpressions:
    """Notes the accesses of expressions in `found`, in the order of their execution."""

    def __init__(self, params: Node, values: KernelValues) -> None:
        self.values = values
        self.places = BufferPlaces(params, values.lasting)
        self.found: list[KernelAccess] = []

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

_EXPRESSIONS: Mapping[type, Callable[[KernelExpressions, Node, KernelScope], None]] = {
    ir.Var: KernelExpressions.mention,
    ir.TensorLoad: KernelExpressions.load,
    ir.Call: KernelExpressions.call,
    prim.Select: KernelExpressions.select,
    prim.And: KernelExpressions.both,
    prim.Or: KernelExpressions.both,
    prim.Not: KernelExpressions.negated,
    prim.Let: KernelExpressions.let,
    prim.Cast: KernelExpressions.wrapped,
    prim.Broadcast: KernelExpressions.wrapped,
    prim.Ramp: KernelExpressions.ramp,
}

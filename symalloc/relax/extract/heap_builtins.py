"""The builtins that work on the shape heap: what VMShapeLower makes of casts, shapes and scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from symalloc.program import ir
from symalloc.program.record import by_position
from symalloc.program.types import DType, ShapeType, TensorType
from symalloc.relax.extract.context import CallSite, CommonFields, Context, Handler, not_a_size, takes
from symalloc.relax.extract.shape_heap import (
    ALLOCATES,
    MAKE_NUMBER,
    MATCH_NUMBER,
    MATCH_SLOT,
    MATCH_STORE,
    UNKNOWN_SLOT,
    Code,
    UnwrittenSlotError,
    extents_given,
    extents_of_cast,
    is_of_cast,
    matched_type,
    pairs_of,
)
from symalloc.relax.extract.tir_to_expr import NotASizeError
from symalloc.relax.ir_types import CallNode, Node, elements
from symalloc.size.condition import Condition, eq
from symalloc.size.expr import Expr, constant, symbol

MAKE_PRIM_VALUE = "vm.builtin.make_prim_value"
_made_call = by_position(ir.CallKernel)
_SLOT = DType("int64", 64)


@takes(1)
def _alloc_heap(site: CallSite) -> ir.Instruction:
    """(number of slots): a heap of which nothing is known."""
    count = site.constant(0, "a number of slots")
    var = ir.Var(site.var.name, TensorType(shape=(constant(count),), dtype=_SLOT))
    site.context.heaps.make(var, count)
    return ir.Alias(**CommonFields({**site.head, "var": var}), source=ir.TextLiteral("shape heap"))


@takes(4)
def _match_shape(site: CallSite) -> ir.Instruction:
    """(tensor or shape, heap, number of extents, (code, number or slot)…, text of an error)."""
    site.context.heaps.lowered = True
    matching = _Matching(site.context, site.arguments[0], site.operand(1), site.arguments[-1])
    count = site.constant(2, "a number of extents")
    pairs = pairs_of(_numbers(site.context, site.arguments[3:-1]), count)
    extents = tuple([matching.extent(axis, pair) for axis, pair in enumerate(pairs)])
    if matching.unwritten is not None:
        raise matching.unwritten
    target = matched_type(matching.source, extents)
    return ir.MatchCast(
        **site.head, source=matching.source, target=target, defines=frozenset(matching.defines), returns=False
    )


def _numbers(context: Context, nodes: Sequence[Node]) -> list[int]:
    return [context.constant(node, "a code or slot") for node in nodes]


class _Matching:
    """One match_shape: finds what each extent of `source` is, and stores it where that is asked for.

    An extent that nothing tells gets a symbol: of the R.match_cast that the call stands for, or a new one.
    """

    def __init__(self, context: Context, value: Node, heap: ir.Operand, error: Node) -> None:
        self.context, self.heap, self.name = context, heap, getattr(value, "name", "extent")
        self.source = context.operand(value)
        self.defines: set[str] = set()
        self.unwritten: UnwrittenSlotError | None = None
        self._given = extents_given(self.source)
        self._named = extents_of_cast(context.heaps.next_cast(value)) if is_of_cast(error) else ()

    def extent(self, axis: int, pair: Code) -> Expr:
        """The extent that a pair asks for; a store gives the slot its value."""
        if pair.code == MATCH_NUMBER:
            return constant(pair.value)
        wanted = self._wanted(pair.value) if pair.code == MATCH_SLOT else None
        found = self._found(axis) if wanted is None else wanted
        if pair.code == MATCH_STORE:
            self.context.heaps.store(self.heap, pair.value, found)
        return found

    def _wanted(self, slot: int) -> Expr | None:
        try:
            return self.context.heaps.load(self.heap, slot)
        except UnwrittenSlotError as reason:
            self.unwritten = reason
            return None

    def _found(self, axis: int) -> Expr:
        symbols, named = self.context.symbols, self._named[axis] if axis < len(self._named) else None
        if named is not None and type(named) in (tvm.ir.Var, relax.DataflowVar):
            defined = symbols.define(named, ir.Origin.CAST)
            if defined is not None:
                self.defines.add(defined)
                return symbols.resolve(named)
        if self._given is not None and axis < len(self._given):
            return self._given[axis]
        invented = symbol(symbols.new(f"{self.name}_{axis}", ir.Origin.CAST))
        self.defines |= invented.symbols
        return invented


@takes(4)
def _match_number(site: CallSite) -> ir.Instruction:
    """(scalar, heap, code, number or slot, text of an error)."""
    source, heap = site.operand(0), site.operand(1)
    value = source.value if isinstance(source, ir.Scalar) else None
    code, number = _numbers(site.context, site.arguments[2:4])
    if code == MATCH_STORE:
        site.context.heaps.store(heap, number, value)
    wanted = constant(number) if code == MATCH_NUMBER else site.context.heaps.load(heap, number)
    condition: Condition | None = None if value is None or wanted is None else eq(value, wanted)
    return ir.Assert(**site.head, condition=condition)


@takes(2)
def _make_shape(site: CallSite) -> ir.Instruction:
    """(heap, number of extents, (code, number or slot)…)."""
    heap, count = site.operand(0), site.constant(1, "a number of extents")
    pairs = pairs_of(_numbers(site.context, site.arguments[2:]), count)
    found = [_made(site.context, heap, pair) for pair in pairs]
    extents = tuple([extent for extent in found if extent is not None])
    if len(extents) < count:
        not_a_size(UNKNOWN_SLOT)
    var = ir.Var(site.var.name, ShapeType(values=extents, ndim=count))
    return ir.Alias(**CommonFields({**site.head, "var": var}), source=ir.ShapeValue(extents))


def _made(context: Context, heap: ir.Operand, pair: Code) -> Expr | None:
    return constant(pair.value) if pair.code == MAKE_NUMBER else context.heaps.load(heap, pair.value)


def made_number(context: Context, call: CallNode) -> Expr:
    """The scalar that a call of make_prim_value (heap, code, number or slot) makes; raises NotASizeError."""
    arguments = elements(call.args)
    if len(arguments) != 3:
        not_a_size(f"{len(arguments)} arguments where 3 are needed")
    found = _made(context, context.operand(arguments[0]), Code(*_numbers(context, arguments[1:])))
    if found is None:
        raise NotASizeError(UNKNOWN_SLOT)
    return found


def call_kernel(site: CallSite, name: str) -> ir.Instruction:
    """A call of the PrimFunc `name`; nothing is left of one that computes slots of a heap from others."""
    context, operands = site.context, site.operands
    slots = context.heaps.slots.get(operands[0]) if len(operands) == 1 and context.heaps.slots else None
    if slots is not None and context.host.computes_slots(name, len(slots)):
        context.host.store(name, slots)
        return ir.MakeTuple(**site.head, fields=())
    context.heaps.forget(operands)
    return _made_call(*site.head.values(), name, operands)


HEAP_BUILTINS: Mapping[str, Handler] = {
    ALLOCATES: _alloc_heap,
    "vm.builtin.make_shape": _make_shape,
    "vm.builtin.match_prim_value": _match_number,
    "vm.builtin.match_shape": _match_shape,
}

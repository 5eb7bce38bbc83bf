"""The shape heap that VMShapeLower makes, read back: which expression each of its slots holds.

The heap is no memory of the program here.  What is stored into a slot is kept as an expression, and what is
made of a slot is that expression again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import tvm
from tvm import relax

from symalloc.program import ir
from symalloc.program.operands import type_of
from symalloc.program.types import ShapeType, TensorType, Type
from symalloc.relax.extract.host_functions import (
    UNWRITTEN,
    Garbage,
    MissingSlotError,
    Slot,
    Slots,
    UnwrittenSlotError,
)
from symalloc.relax.extract.tir_form import NotASizeError
from symalloc.relax.ir_types import Node, bindings_in, elements
from symalloc.size.expr import Expr

# the codes of match_shape and make_shape in TVM's src/runtime/vm/builtin.cc
MATCH_NUMBER, MATCH_STORE, _, MATCH_SLOT = range(4)
MAKE_NUMBER, MAKE_SLOT = range(2)
ALLOCATES = "vm.builtin.alloc_shape_heap"
_WITH_CONTEXT = "relax.call_builtin_with_ctx"
_OF_CAST = "ErrorContext(match_cast"
"""What the last argument of a match_shape begins with that stands for an R.match_cast."""


class Code(NamedTuple):
    """One extent in a call of match_shape or make_shape: what to do with it, and a number or a slot."""

    code: int
    value: int


@dataclass(slots=True)
class ShapeHeaps:
    """The heaps of one function by the variable that holds each.

    `body` is that of the function: behind VMShapeLower a match_shape in front of each R.match_cast does its
    work.  `lowered`: VMShapeLower has run.
    """

    slots: dict[ir.Operand, Slots] = field(default_factory=dict)
    body: Node | None = None
    lowered: bool = False
    _casts: dict[int, list[Node]] | None = None

    def next_cast(self, value: Node) -> Node | None:
        """The type of the R.match_cast that the next match_shape of `value` stands for."""
        if self._casts is None:
            self._casts = {} if self.body is None else casts_in(self.body)
        types = self._casts.get(value.__chandle__())
        return types.pop(0) if types else None

    def make(self, var: ir.Var, size: int) -> None:
        """A heap of `size` slots that nothing has written yet, unless it may be written by another name."""
        seen = self.body is not None and not _gets_other_names(self.body)
        self.slots[var] = [UNWRITTEN if seen else None] * size
        self.lowered = True

    def load(self, heap: ir.Operand, slot: int) -> Expr | None:
        """The expression in a slot, None where it is not known; raises UnwrittenSlotError and
        MissingSlotError.
        """
        slots = self._with(heap, slot)
        found = None if slots is None else slots[slot]
        if isinstance(found, Garbage):
            raise UnwrittenSlotError(slot)
        return found

    def store(self, heap: ir.Operand, slot: int, value: Slot) -> None:
        """Put an expression into a slot; raises MissingSlotError."""
        slots = self._with(heap, slot, stored=True)
        if slots is not None:
            slots[slot] = value

    def _with(self, heap: ir.Operand, slot: int, *, stored: bool = False) -> Slots | None:
        """The slots of a heap, which must have `slot`: what stands behind it is other memory."""
        slots = self.slots.get(heap)
        if slots is not None and not 0 <= slot < len(slots):
            raise MissingSlotError(slot, len(slots), stored=stored)
        return slots

    def forget(self, operands: Sequence[ir.Operand]) -> None:
        """Something that is not understood was handed these operands: any slot of theirs may have changed."""
        for operand in operands if self.slots else ():
            if operand in self.slots:
                self.slots[operand][:] = [None] * len(self.slots[operand])

    def saved(self) -> dict[ir.Operand, Slots]:
        """A copy of what all slots hold."""
        return {var: list(slots) for var, slots in self.slots.items()}

    def restore(self, saved: Mapping[ir.Operand, Slots]) -> None:
        """Go back to what `saved` gave."""
        self.slots = {var: list(slots) for var, slots in saved.items()}

    def join(self, other: Mapping[ir.Operand, Slots]) -> None:
        """Keep what the slots hold here and at the end of the `other` branch alike."""
        for var, slots in self.slots.items():
            theirs = other.get(var)
            if theirs is not None:
                slots[:] = [a if a == b else None for a, b in zip(slots, theirs, strict=True)]


def _gets_other_names(body: Node) -> bool:
    """Return whether some heap of a function may be written by a name that is not that of its binding."""
    heaps, named = set[int](), set[int]()
    for binding in bindings_in(body):
        if ALLOCATES in map(_symbol, getattr(binding.value, "args", ())):
            heaps.add(binding.var.__chandle__())
        named.update(node.__chandle__() for node in _handed_on(binding.value))
    return not heaps.isdisjoint(named)


def _symbol(node: Node) -> str | None:
    return str(node.global_symbol) if type(node) is relax.ExternFunc else None


def _handed_on(value: Node) -> Iterable[Node]:
    """The values that a binding gives another name, or hands to an operator; calls do not count."""
    kind = type(value)
    if kind is tvm.ir.Call:
        if type(value.op) is not tvm.ir.Op or value.op.name == _WITH_CONTEXT:
            return ()
        return (inner for node in elements(value.args) for inner in (node, *getattr(node, "fields", ())))
    if kind is relax.If:
        return (value.true_branch.body, value.false_branch.body)
    if kind is relax.Function:
        return tuple(relax.analysis.free_vars(value))
    return (value, *getattr(value, "fields", ()), getattr(value, "body", value))


def casts_in(body: Node) -> dict[int, list[Node]]:
    """The types that R.match_cast gives each value, by the value's address, in the order of the bindings."""
    found: dict[int, list[Node]] = {}
    for binding in bindings_in(body):
        if type(binding) is relax.MatchCast:
            found.setdefault(binding.value.__chandle__(), []).append(binding.ty)
    return found


def is_of_cast(context: Node) -> bool:
    """Return whether the last argument of a match_shape says that it stands for an R.match_cast."""
    return type(context) is tvm.ir.StringImm and str(context.value).startswith(_OF_CAST)


def extents_of_cast(type_: Node | None) -> Sequence[Node | None]:
    """The extents that an R.match_cast gives its value, as TVM's expressions."""
    if isinstance(type_, relax.TensorType):
        shape = type_.shape
        return list(shape.values) if isinstance(shape, relax.ShapeExpr) else ()
    if isinstance(type_, relax.ShapeType):
        return list(type_.values or ())
    return ()


def pairs_of(numbers: Sequence[int], count: int) -> list[Code]:
    """`count` pairs of a code and a value; raises NotASizeError where there are not so many."""
    if len(numbers) < 2 * count:
        raise NotASizeError(f"{len(numbers)} numbers where {2 * count} are needed")
    return [Code(numbers[2 * i], numbers[2 * i + 1]) for i in range(count)]


def extents_given(source: ir.Operand) -> tuple[Expr, ...] | None:
    """The extents of a tensor or shape; None where they are not known."""
    kind = type_of(source)
    return (
        kind.shape if isinstance(kind, TensorType) else kind.values if isinstance(kind, ShapeType) else None
    )


def matched_type(source: ir.Operand, extents: tuple[Expr, ...]) -> Type:
    """The type that match_shape checks for."""
    if isinstance(type_of(source), TensorType):
        return TensorType(shape=extents, dtype=None, ndim=len(extents))
    return ShapeType(values=extents, ndim=len(extents))

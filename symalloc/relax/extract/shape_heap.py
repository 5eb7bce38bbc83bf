"""The shape heap that VMShapeLower makes, read back: which expression each of its slots holds.

The heap is no memory of the program here.  What is stored into a slot is kept as an expression, and what is
made of a slot is that expression again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import tvm
from tvm import relax, tirx
from tvm.tirx.buffer import BufferType

from symalloc.program import ir
from symalloc.program.ir import SlotFault
from symalloc.relax.extract.kernel_body import buffer_accesses
from symalloc.relax.extract.tir_to_expr import NotASizeError, TirToExpr
from symalloc.relax.ir_types import Node, PrimNode, bindings_in, constant_extent, elements, nodes_in
from symalloc.size.condition import ne
from symalloc.size.expr import Expr, symbol

CHECKS = frozenset({tirx.IfThenElse, tirx.AssertStmt})
"""The statements that a function of sizes may have besides: they end the call, or do nothing."""


UNWRITTEN = symbol("unwritten'")
"""The content of a slot that nothing has written; what is computed from such a slot has its symbol."""
UNKNOWN_SLOT = "a slot of the shape heap of which nothing is known"
Slots: TypeAlias = list[Expr | None]
"""What the slots of a shape heap hold; None for one of which nothing is known."""


class WrongSlotError(NotASizeError):
    """A slot of a shape heap is used as it must not be: `fault`."""

    def __init__(self, text: str, fault: SlotFault) -> None:
        super().__init__(text)
        self.fault = fault


def slot_fault(reason: Exception, builtin: str) -> SlotFault | None:
    """The fault of `builtin` that `reason` tells of; None where it is about no slot."""
    return replace(reason.fault, builtin=builtin) if isinstance(reason, WrongSlotError) else None


def returned(
    function: Node, arguments: Sequence[Expr], nonnegative: Callable[[str], bool]
) -> tuple[TirToExpr, PrimNode]:
    """The expression that a PrimFunc returns for `arguments`, and its form; raises NotASizeError.

    `nonnegative` tells, of a symbol in the arguments, whether it is known to be >= 0.
    """
    params, body = elements(function.params), function.body
    if type(body) is not tirx.Return or len(params) != len(arguments):
        raise NotASizeError("a PrimFunc that does more than return a number")
    resolve = _among({p.__chandle__(): value for p, value in zip(params, arguments, strict=True)})
    return TirToExpr(resolve, lambda var: ne(resolve(var), 0), nonnegative), body.value


def computes_slots(function: Node, count: int) -> bool:
    """Return whether a PrimFunc takes a heap of `count` slots, and only checks them and stores into them."""
    params, statements = elements(function.params), _statements(function.body)
    if len(params) != 1 or type(params[0].ty) is not BufferType:
        return False
    if [constant_extent(extent) for extent in params[0].ty.shape] != [count]:
        return False
    stores = [s for s in statements if type(s) not in CHECKS]
    if not all(type(s) is tirx.BufferStore and s.buffer.same_as(params[0]) for s in stores):
        return False
    if not all(_slot_index(s) in range(count) for s in stores):
        return False
    accesses, key = buffer_accesses(function.body), params[0].__chandle__()
    only_stores = accesses.only_accessed(key) and accesses.stores[key] == len(stores)
    return only_stores and not accesses.leaves_early


def store_slots(function: Node, slots: Slots, nonnegative: Callable[[str], bool]) -> None:
    """Carry out the stores of a PrimFunc that `computes_slots`, in order."""

    def load(node: PrimNode) -> Expr:
        index = _slot_index(node)
        value = slots[index] if index is not None and 0 <= index < len(slots) else None
        if value is None:
            raise NotASizeError(UNKNOWN_SLOT)
        return value

    for statement in _statements(function.body):
        if type(statement) not in CHECKS:
            form = TirToExpr(_among({}), nonnegative=nonnegative, load=load)
            slots[_slot_index(statement) or 0] = form.expr_or_none(statement.value)


def _statements(body: Node) -> list[Node]:
    return list(body.seq) if type(body) is tirx.SeqStmt else [body]


def _among(values: Mapping[int, Expr]) -> Callable[[PrimNode], Expr]:
    def resolve(var: PrimNode) -> Expr:
        found = values.get(var.__chandle__())
        if found is None:
            raise NotASizeError(f"`{var.name}`, which no parameter binds")
        return found

    return resolve


def _slot_index(access: Node) -> int | None:
    return constant_extent(access.indices[0]) if len(access.indices) == 1 else None


# the codes of match_shape and make_shape in TVM's src/runtime/vm/builtin.cc
MATCH_NUMBER, MATCH_STORE, _, MATCH_SLOT = range(4)
MAKE_NUMBER = 0
ALLOCATES = "vm.builtin.alloc_shape_heap"
_WITH_CONTEXT = "relax.call_builtin_with_ctx"
_OF_CAST = "ErrorContext(match_cast"
"""What the last argument of a match_shape begins with that stands for an R.match_cast."""


@dataclass(slots=True)
class ShapeHeaps:
    """The heaps of one function by the variable that holds each.

    `body` is that of the function: behind VMShapeLower a match_shape in front of each R.match_cast does its
    work.  `lowered`: VMShapeLower has run.
    """

    body: Node
    slots: dict[ir.Operand, Slots] = field(default_factory=dict)
    lowered: bool = False
    _casts: dict[int, list[Node]] | None = None

    def next_cast(self, value: Node, error: Node) -> Node | None:
        """The type of the R.match_cast that the next match_shape of `value` stands for, if its text of an
        error says that it does.
        """
        if type(error) is not tvm.ir.StringImm or not str(error.value).startswith(_OF_CAST):
            return None
        if self._casts is None:
            self._casts = {}
            for binding in bindings_in(self.body):
                if type(binding) is relax.MatchCast:
                    self._casts.setdefault(binding.value.__chandle__(), []).append(binding.ty)
        types = self._casts.get(value.__chandle__())
        return types.pop(0) if types else None

    def make(self, var: ir.Var, size: int) -> None:
        """A heap of `size` slots that nothing has written yet, unless it may be written by another name."""
        self.slots[var] = [None if _gets_other_names(self.body) else UNWRITTEN] * size
        self.lowered = True

    def load(self, heap: ir.Operand, slot: int) -> Expr | None:
        """The expression in a slot, None where it is not known; raises WrongSlotError."""
        slots = self._with(heap, slot)
        found = None if slots is None else slots[slot]
        if found is not None and UNWRITTEN.symbols <= found.symbols:
            raise WrongSlotError("a slot of the shape heap that nothing has written", SlotFault(slot=slot))
        return found

    def store(self, heap: ir.Operand, slot: int, value: Expr | None) -> None:
        """Put an expression into a slot; raises WrongSlotError."""
        slots = self._with(heap, slot, stored=True)
        if slots is not None:
            slots[slot] = value

    def _with(self, heap: ir.Operand, slot: int, *, stored: bool = False) -> Slots | None:
        """The slots of a heap, which must have `slot`: what stands behind it is other memory."""
        slots = self.slots.get(heap)
        if slots is not None and not 0 <= slot < len(slots):
            fault = SlotFault(slot=slot, size=len(slots), stored=stored)
            raise WrongSlotError(f"slot {slot} of a shape heap that has {len(slots)}", fault)
        return slots

    def forget(self, operands: Sequence[ir.Operand]) -> None:
        """Something that is not understood was handed these operands: any slot of theirs may have changed."""
        for operand in operands if self.slots else ():
            if operand in self.slots:
                self.slots[operand][:] = [None] * len(self.slots[operand])

    def saved(self) -> dict[ir.Operand, Slots]:
        """A copy of what all slots hold."""
        return {var: list(slots) for var, slots in self.slots.items()}

    def join(self, other: Mapping[ir.Operand, Slots]) -> None:
        """Keep what the slots hold here and at the end of the `other` branch alike."""
        for var, slots in self.slots.items():
            theirs = other.get(var)
            if theirs is not None:
                slots[:] = [a if a == b else None for a, b in zip(slots, theirs, strict=True)]


def _gets_other_names(body: Node) -> bool:
    """Return whether some heap of a function may be written by a name that is not that of its binding: a call
    of an operator, a tuple, a branch, a closure gives it one; other calls do not.
    """
    heaps, named = set[int](), set[int]()
    for binding in bindings_in(body):
        value = binding.value
        op = value.op if type(value) is tvm.ir.Call else None
        if ALLOCATES in (getattr(node, "global_symbol", None) for node in getattr(value, "args", ())):
            heaps.add(binding.var.__chandle__())
        elif op is None or (type(op) is tvm.ir.Op and op.name != _WITH_CONTEXT):
            branches = (value.true_branch.body, value.false_branch.body) if type(value) is relax.If else ()
            variables = nodes_in(branches or (value,), tvm.ir.Var, relax.DataflowVar)
            named.update(var.__chandle__() for var in variables)
    return not heaps.isdisjoint(named)


def extents_of_cast(type_: Node | None) -> Sequence[Node | None]:
    """The extents that an R.match_cast gives its value, as TVM's expressions."""
    shape = type_.shape if isinstance(type_, relax.TensorType) else type_
    return list(shape.values or ()) if isinstance(shape, relax.ShapeExpr | relax.ShapeType) else ()

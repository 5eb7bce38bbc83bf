"""PrimFuncs that compute sizes: what they return or store, as expressions of their arguments.

ComputePrimValue makes functions that return one number, VMShapeLower makes functions that compute slots of
the shape heap from other slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, TypeAlias

from tvm import tirx
from tvm.tirx.buffer import BufferType

from symalloc.program.ir import SlotFault
from symalloc.relax.extract.buffer_accesses import buffer_accesses
from symalloc.relax.extract.tir_form import NotASizeError, TirForm
from symalloc.relax.ir_types import Node, PrimNode
from symalloc.size.condition import Condition, ne
from symalloc.size.expr import Expr

CHECKS = frozenset({tirx.IfThenElse, tirx.AssertStmt})
"""The statements that a function of sizes may have besides: they end the call, or do nothing."""


class Garbage(Enum):
    """The content of a slot that nothing has written, or that was computed from such a slot."""

    UNWRITTEN = "unwritten"


UNWRITTEN: Final = Garbage.UNWRITTEN
Slot: TypeAlias = Expr | Garbage | None
Slots: TypeAlias = list[Slot]
"""What the slots of a shape heap hold; None for one of which nothing is known."""


class WrongSlotError(NotASizeError):
    """A slot of a shape heap is used as it must not be: `fault`."""

    def __init__(self, text: str, fault: SlotFault) -> None:
        super().__init__(text)
        self.fault = fault


def slot_fault(reason: Exception, builtin: str) -> SlotFault | None:
    """The fault of `builtin` that `reason` tells of; None where it is about no slot."""
    return replace(reason.fault, builtin=builtin) if isinstance(reason, WrongSlotError) else None


class UnwrittenSlotError(WrongSlotError):
    """A slot of a shape heap is read that nothing has written."""

    def __init__(self, slot: int) -> None:
        super().__init__("a slot of the shape heap that nothing has written", SlotFault(slot=slot))


class MissingSlotError(WrongSlotError):
    """A slot is loaded or `stored` of a shape heap that has `size` slots, which are too few."""

    def __init__(self, slot: int, size: int, *, stored: bool) -> None:
        fault = SlotFault(slot=slot, size=size, stored=stored)
        super().__init__(f"slot {slot} of a shape heap that has {size}", fault)


class HostFunctions:
    """The PrimFuncs of a module by name, evaluated on expressions.

    `nonnegative` tells, of a symbol in the arguments, whether it is known to be >= 0.
    """

    def __init__(self, functions: Mapping[str, Node], nonnegative: Callable[[str], bool]) -> None:
        self._functions, self._nonnegative = functions, nonnegative

    def number(self, name: str, arguments: Sequence[Expr]) -> Expr:
        """The integer that the function `name` returns; raises NotASizeError."""
        form, value = self._returned(name, arguments)
        return form.expr(value)

    def flag(self, name: str, arguments: Sequence[Expr]) -> Condition:
        """The condition that the function `name` returns; raises NotASizeError."""
        form, value = self._returned(name, arguments)
        return form.condition(value)

    def _returned(self, name: str, arguments: Sequence[Expr]) -> tuple[TirForm, PrimNode]:
        function = self._functions.get(name)
        if function is None:
            raise NotASizeError(f"`{name}`, which is no PrimFunc of the module")
        params, body = list(function.params), function.body
        if type(body) is not tirx.Return or len(params) != len(arguments):
            raise NotASizeError(f"`{name}`, which does more than return a number")
        values = {p.__chandle__(): value for p, value in zip(params, arguments, strict=True)}
        resolve = _among(values)
        form = TirForm(resolve, lambda var: ne(resolve(var), 0), nonnegative=self._nonnegative)
        return form, body.value

    def computes_slots(self, name: str, count: int) -> bool:
        """Return whether the function `name` takes a heap of `count` slots, and only checks them and stores
        into them.
        """
        function = self._functions[name]
        params = list(function.params)
        if len(params) != 1 or type(params[0].ty) is not BufferType:
            return False
        if [_number(extent) for extent in params[0].ty.shape] != [count]:
            return False
        statements = _statements(function.body)
        stores = [s for s in statements if type(s) not in CHECKS]
        if not all(_stores_slot(s, params[0], count) for s in stores):
            return False
        return len(stores) == len(statements) or _stores_only(function, len(stores))

    def store(self, name: str, slots: Slots) -> None:
        """Carry out the stores of the function `name` on `slots`, in order."""
        run = _SlotStores(slots, self._nonnegative)
        for statement in _statements(self._functions[name].body):
            if type(statement) not in CHECKS:
                run.store(statement)


def _stores_only(function: tirx.PrimFunc, count: int) -> bool:
    """Return whether a function of a heap stores into it `count` times, and else only loads from it."""
    accesses, key = buffer_accesses(function.body), function.params[0].__chandle__()
    return accesses.only_accessed(key) and accesses.stores[key] == count and not accesses.leaves_early


def _stores_slot(statement: Node, heap: Node, count: int) -> bool:
    if type(statement) is not tirx.BufferStore or not statement.buffer.same_as(heap):
        return False
    index = _slot_index(statement.indices)
    return index is not None and 0 <= index < count


def _statements(body: Node) -> list[Node]:
    return list(body.seq) if type(body) is tirx.SeqStmt else [body]


def _among(values: Mapping[int, Expr]) -> Callable[[PrimNode], Expr]:
    def resolve(var: PrimNode) -> Expr:
        found = values.get(var.__chandle__())
        if found is None:
            raise NotASizeError(f"`{var.name}`, which no parameter binds")
        return found

    return resolve


class _SlotStores:
    """Evaluates stores one after the other; a slot that was loaded before it is stored is read anew."""

    def __init__(self, slots: Slots, nonnegative: Callable[[str], bool]) -> None:
        self.slots, self._nonnegative = slots, nonnegative
        self._loaded: set[int] = set()
        self._form = self._fresh_form()

    def _fresh_form(self) -> TirForm:
        self._loaded.clear()
        return TirForm(_among({}), nonnegative=self._nonnegative, load=self._load)

    def store(self, statement: Node) -> None:
        index = _slot_index(statement.indices) or 0
        try:
            self.slots[index] = self._form.expr(statement.value)
        except UnwrittenSlotError:
            self.slots[index] = UNWRITTEN
        except NotASizeError:
            self.slots[index] = None
        if index in self._loaded:
            self._form = self._fresh_form()

    def _load(self, node: PrimNode) -> Expr:
        index = _slot_index(node.indices)
        value = self.slots[index] if index is not None and 0 <= index < len(self.slots) else None
        if index is None or value is None:
            raise NotASizeError("a slot of the shape heap of which nothing is known")
        if isinstance(value, Garbage):
            raise UnwrittenSlotError(index)
        self._loaded.add(index)
        return value


def _slot_index(indices: Node) -> int | None:
    return _number(indices[0]) if len(indices) == 1 else None


def _number(node: Node) -> int | None:
    return int(node.value) if type(node) is tirx.IntImm else None

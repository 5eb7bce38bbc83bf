"""Memo keys of instructions: all that their sites may depend on, names aside.  Equal keys, equal verdicts.

A key holds every field of its instruction, of operands the type and the byte offsets, and of tensors the
storages that they lie on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from symalloc.analysis.regions import Pointees, Region
from symalloc.linter.sites.site import FunctionContext
from symalloc.linter.sites.tensor_on_storage import storages_of
from symalloc.linter.sites.views import absolute_offset
from symalloc.program import ir
from symalloc.program.operands import type_of
from symalloc.program.types import TensorType


class MemoKeys:
    """Makes the memo keys of the instructions of one function."""

    def __init__(self, context: FunctionContext) -> None:
        self.context = context
        self._storages: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def of(self, instruction: ir.Instruction) -> Hashable | None:
        """The key of `instruction`; None where it is too cheap to check, or too rare, to have one."""
        kind = type(instruction)
        make = _KEYS.get(kind)
        return None if make is None else (kind, make(self, instruction))

    def alloc_tensor(self, alloc: ir.AllocTensor) -> Hashable:
        kind = alloc.var.type
        typed = type(kind) is TensorType and kind.shape is alloc.shape and kind.dtype is alloc.dtype
        shape = None if typed else (alloc.shape, alloc.dtype)
        places = tuple([self.storage(region) for region in storages_of(self.context, alloc)])
        return self.context.numbers.of(alloc.var), shape, alloc.offset, alloc.device, places

    def storage(self, region: Region) -> int:
        """A number for all that matters of a storage."""
        found = self._storages.get(region.number)
        if found is None:
            key = (region.nbytes, _storage(region.instruction), self.context.is_known_elsewhere(region))
            found = self._storages[region.number] = self._numbers.setdefault(key, len(self._numbers))
        return found

    def argument(self, operand: ir.Operand) -> Hashable:
        if type(operand) is not ir.Var:
            return operand
        number, value = self.context.numbers.of(operand), self.context.points_to.value_of(operand)
        if type(value) is Pointees and value.offset is not None and not value.offset.terms:
            return number
        return number, tuple(self.context.points_to.offsets(operand))

    def call_kernel(self, call: ir.CallKernel) -> Hashable:
        return call.kernel, *map(self.argument, call.arguments)

    def call_tir(self, call: ir.CallTIR) -> Hashable:
        return call.kernel, tuple(map(self.argument, call.inputs)), call.outputs, call.inplace

    def view(self, view: ir.View) -> Hashable:
        folded = absolute_offset(self.context, view)
        written = view.var in self.context.written_views
        return view.kind, view.offset, view.shape, view.dtype, type_of(view.source), folded, written


def _storage(made: ir.Instruction | None) -> Hashable:
    if not isinstance(made, ir.AllocStorage):
        return None
    return made.size, made.device, made.scope, made.dtype, made.dialect


_KEYS: Mapping[type, Callable[[MemoKeys, Any], Hashable]] = {
    ir.AllocStorage: lambda _, i: _storage(i),
    ir.AllocTensor: MemoKeys.alloc_tensor,
    ir.AllocFresh: lambda _, i: (i.shape, i.dtype, i.device, i.scope),
    ir.View: MemoKeys.view,
    ir.CallKernel: MemoKeys.call_kernel,
    ir.CallTIR: MemoKeys.call_tir,
}

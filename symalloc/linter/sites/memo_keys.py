"""Memo keys of instructions: all that their sites may depend on, names aside.  Equal keys, equal verdicts.

A key holds every field of its instruction, of operands the type and the byte offsets, and of tensors the
storages that they lie on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from symalloc.linter.sites.site import FunctionContext
from symalloc.linter.sites.tensor_on_storage import storages_of
from symalloc.linter.sites.views import absolute_offset
from symalloc.program import ir
from symalloc.program.operands import type_of


def memo_key(context: FunctionContext, instruction: ir.Instruction) -> Hashable | None:
    """The key of `instruction`; None where it is too cheap to check, or too rare, to have one."""
    kind = type(instruction)
    make = _KEYS.get(kind)
    return None if make is None else (kind, make(context, instruction))


def _alloc_tensor(context: FunctionContext, alloc: ir.AllocTensor) -> Hashable:
    known = context.is_known_elsewhere
    made = tuple([(r.nbytes, _storage(r.instruction), known(r)) for r in storages_of(context, alloc)])
    return context.numbers.of(alloc.var), alloc.offset, alloc.shape, alloc.dtype, alloc.device, made


def _storage(made: ir.Instruction | None) -> Hashable:
    if not isinstance(made, ir.AllocStorage):
        return None
    return made.size, made.device, made.scope, made.dtype, made.dialect


def _argument(context: FunctionContext, operand: ir.Operand) -> Hashable:
    if not isinstance(operand, ir.Var):
        return operand
    return context.numbers.of(operand), tuple(context.points_to.offsets(operand))


def _call_kernel(context: FunctionContext, call: ir.CallKernel) -> Hashable:
    return call.kernel, *[_argument(context, argument) for argument in call.arguments]


def _call_tir(context: FunctionContext, call: ir.CallTIR) -> Hashable:
    inputs = tuple(_argument(context, argument) for argument in call.inputs)
    return call.kernel, inputs, call.outputs, call.inplace


def _view(context: FunctionContext, view: ir.View) -> Hashable:
    folded = absolute_offset(context, view)
    written = view.var in context.written_views
    return view.kind, view.offset, view.shape, view.dtype, type_of(view.source), folded, written


_KEYS: Mapping[type, Callable[[FunctionContext, Any], Hashable]] = {
    ir.AllocStorage: lambda _, i: _storage(i),
    ir.AllocTensor: _alloc_tensor,
    ir.AllocFresh: lambda _, i: (i.shape, i.dtype, i.device, i.scope),
    ir.View: _view,
    ir.CallKernel: _call_kernel,
    ir.CallTIR: _call_tir,
}

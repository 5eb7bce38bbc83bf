"""Packed functions: those that are operations of the program, and calls of all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm

from symalloc.program import ir
from symalloc.program.tvm_functions import packed_function
from symalloc.relax.extract.context import Context, Handler, Head, not_a_size, takes
from symalloc.relax.extract.heap_builtins import HEAP_BUILTINS, call_kernel
from symalloc.relax.extract.memory_operators import (
    assertion,
    ensure_zero_offset,
    place_tensor,
    reserve_vm_storage,
    reshape,
    same_value,
    take_view,
)
from symalloc.relax.extract.type_conversion import holds_memory
from symalloc.relax.ir_types import CallNode, Node, elements


def call_packed(
    context: Context, head: Head, call: CallNode, name: str, arguments: Sequence[Node], *, pure: bool
) -> ir.Instruction:
    """A call of the packed function `name` with TVM's `arguments`; raises NotASizeError."""
    special = _SPECIAL.get(name)
    if special is not None:
        return special(context, head, call, arguments)
    kernel = context.module.symbols.get(name)
    if kernel is not None:
        return call_kernel(context, head, kernel, arguments)
    if name in _CLOSURES:
        return context.not_understood(head, "a call of a closure", arguments)
    known, operands = packed_function(name), context.operands(arguments)
    context.heaps.forget(operands)
    return ir.CallPacked(
        **head,
        name=name,
        arguments=operands,
        ownership=known.ownership if holds_memory(head["var"].type) else ir.Ownership.FRESH,
        pure=pure or known.reads_only,
        writes=known.writes,
        may_capture=not pure and known.may_capture,
    )


def _make_tuple(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    return ir.MakeTuple(**head, fields=context.operands(arguments))


@takes(2)
def _take_field(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    index = context.constant(arguments[1], "a tuple index")
    return ir.TakeField(**head, source=context.operand(arguments[0]), index=index)


@takes(2)
def _run_or_capture(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    """A CUDA graph over (function, tuple of its arguments, …): the function, called with them."""
    packed = arguments[1]
    if type(packed) is not tvm.ir.Tuple:
        not_a_size("arguments that are no tuple literal")
    inner = context.operands(elements(packed.fields))
    return ir.CallFunction(**head, name=_function_name(context, arguments[0]), arguments=inner)


@takes(1)
def _cached_allocation(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    """(function, …): what the function allocates, kept from the first call on."""
    return ir.CallFunction(**head, name=_function_name(context, arguments[0]), arguments=(), kept=True)


def _function_name(context: Context, callee: Node) -> str:
    if type(callee) is not tvm.ir.GlobalVar or callee.name_hint not in context.module.functions:
        not_a_size("a callee that is no function of the module")
    return str(callee.name_hint)


_SPECIAL: Mapping[str, Handler] = {
    **HEAP_BUILTINS,
    "relax.run.assert_op": assertion,
    "runtime.TVMTensorCreateView": take_view,
    "vm.builtin.alloc_storage": reserve_vm_storage,
    "vm.builtin.alloc_tensor": place_tensor,
    "vm.builtin.cuda_graph.get_cached_alloc": _cached_allocation,
    "vm.builtin.cuda_graph.run_or_capture": _run_or_capture,
    "vm.builtin.copy": same_value,  # despite its name it returns its argument
    "vm.builtin.ensure_zero_offset": ensure_zero_offset,
    "vm.builtin.make_tuple": _make_tuple,
    "vm.builtin.reshape": reshape,
    "vm.builtin.tuple_getitem": _take_field,
}
_CLOSURES = frozenset({"vm.builtin.invoke_closure", "vm.builtin.make_closure"})

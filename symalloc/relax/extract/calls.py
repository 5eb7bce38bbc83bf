"""Calls: of operators, kernels, functions, packed functions and closures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tvm
from tvm import relax

from symalloc.program import ir
from symalloc.program.tvm_functions import packed_function
from symalloc.program.types import TensorType, is_open
from symalloc.relax.extract.context import Context, Handler, Head, not_a_size, takes
from symalloc.relax.extract.heap_builtins import HEAP_BUILTINS, call_kernel
from symalloc.relax.extract.memory_operators import (
    MEMORY_OPERATORS,
    assertion,
    ensure_zero_offset,
    place_tensor,
    reserve_vm_storage,
    reshape,
    same_value,
    take_view,
)
from symalloc.relax.extract.shape_heap import slot_fault
from symalloc.relax.extract.tir_form import NotASizeError
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


def translate_call(context: Context, head: Head, call: CallNode) -> ir.Instruction:
    """The instruction for a call; what has no exact form becomes NotUnderstood."""
    op, arguments = call.op, elements(call.args)
    rule = _CALLEES.get(type(op))
    try:
        if rule is not None:
            return rule(context, head, call, op, arguments)
        return context.not_understood(head, "a call of a function value (a closure)", [op, *arguments])
    except NotASizeError as reason:
        name = _callee_name(call)
        what = f"{f'`{name}`' if name else 'a call'} with {reason}"
        return context.not_understood(head, what, _tensor_arguments(call), slot_fault(reason, name))


def _callee_name(call: CallNode) -> str:
    op = call.op
    name = getattr(op, "name", None) or getattr(op, "name_hint", None) or getattr(op, "global_symbol", None)
    return str(name or "")


def _tensor_arguments(call: CallNode) -> list[Node]:
    """The arguments, those inside a literal argument tuple one by one."""
    flat: list[Node] = []
    for argument in call.args:
        flat.extend(argument.fields if type(argument) is tvm.ir.Tuple else (argument,))
    return flat


# -- by kind of callee -------------------------------------------------------------------------------------


def _global(
    context: Context, head: Head, call: CallNode, op: Node, arguments: Sequence[Node]
) -> ir.Instruction:
    name = context.callee_name(op)
    module = context.module
    if name in module.kernels:
        return call_kernel(context, head, name, arguments)
    if name in module.functions:
        operands = context.operands(arguments)
        context.heaps.forget(operands)
        if is_open(head["var"].type):
            head = context.known_head(head, module.result_of(name, operands))
        return ir.CallFunction(**head, name=name, arguments=operands)
    symbol = module.externs.get(name)
    if symbol is not None:
        return call_packed(context, head, call, symbol, arguments, pure=False)
    return not_a_size(f"`{name}`, which the module does not define")


def _extern(
    context: Context, head: Head, call: CallNode, op: Node, arguments: Sequence[Node]
) -> ir.Instruction:
    return call_packed(context, head, call, str(op.global_symbol), arguments, pure=False)


def _operator(
    context: Context, head: Head, call: CallNode, op: Node, arguments: Sequence[Node]
) -> ir.Instruction:
    name = context.callee_name(op)
    rule = _OPERATORS.get(name)
    if rule is not None:
        return rule(context, head, call, arguments)
    if name.startswith("relax.dist."):
        return context.not_understood(head, f"the distributed operator `{name}`", arguments)
    wanted = _ATTRIBUTES.get(name)
    return ir.CallOperator(
        **head,
        name=name,
        arguments=context.operands(arguments),
        attributes={} if wanted is None else _attributes(call.attrs, wanted),
    )


def _attributes(attrs: Node, wanted: tuple[str, ...]) -> dict[str, str]:
    found = ((name, getattr(attrs, name, None)) for name in wanted)
    return {name: str(value) for name, value in found if value is not None}


_CALLEES: Mapping[type, Callable[[Context, Head, CallNode, Node, Sequence[Node]], ir.Instruction]] = {
    tvm.ir.Op: _operator,
    tvm.ir.GlobalVar: _global,
    relax.ExternFunc: _extern,
}

# -- operators that call ------------------------------------------------------------------------------------


@takes(2)
def _call_tir(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    callee = arguments[0]
    if type(callee) is not tvm.ir.GlobalVar or callee.name_hint not in context.module.kernels:
        not_a_size("a callee that is no PrimFunc of the module")
    return ir.CallTIR(
        **head,
        kernel=callee.name_hint,
        inputs=_literal_tuple(context, arguments[1]),
        outputs=_outputs(context, call),
        inplace=_places(call),
    )


def _outputs(context: Context, call: CallNode) -> tuple[TensorType, ...]:
    declared = call.ty_args[0]
    fields = declared.fields if type(declared) is tvm.ir.TupleType else (declared,)
    outputs = tuple(context.types.of(field) for field in fields)
    known = tuple(output for output in outputs if isinstance(output, TensorType))
    return known if len(known) == len(outputs) else not_a_size("a result that is no tensor")


def _literal_tuple(context: Context, node: Node) -> tuple[ir.Operand, ...]:
    if type(node) is not tvm.ir.Tuple:
        not_a_size("arguments that are no tuple literal")
    return context.operands(elements(node.fields))


@takes(1)
def _pure_packed(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    return call_packed(context, head, call, _packed_name(arguments[0]), arguments[1:], pure=True)


def _packed_name(callee: Node) -> str:
    if type(callee) is not relax.ExternFunc:
        not_a_size("a callee that is no packed function")
    return str(callee.global_symbol)


@takes(1)
def _inplace_packed(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    inplace = _places(call)
    return ir.CallPacked(
        **head,
        name=_packed_name(arguments[0]),
        arguments=context.operands(arguments[1:]),
        ownership=ir.Ownership.ARGUMENT,
        pure=False,
        writes=frozenset(i for i in inplace if i is not None),
        inplace=inplace,
    )


def _places(call: CallNode) -> tuple[int | None, ...]:
    """The argument that each output of an in-place call lies in; empty for a call that has none."""
    places = getattr(call.attrs, "inplace_indices", None) if call.attrs is not None else None
    return () if places is None else tuple(int(i) if int(i) >= 0 else None for i in places)


@takes(2)
def _destination_passing(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    return ir.CallPacked(
        **head,
        name=_packed_name(arguments[0]),
        arguments=_literal_tuple(context, arguments[1]),
        ownership=ir.Ownership.FRESH,
        pure=True,
    )


@takes(2)
def _with_context(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    packed = arguments[1]
    inner = elements(packed.fields) if type(packed) is tvm.ir.Tuple else [packed]
    return call_packed(context, head, call, _packed_name(arguments[0]), inner, pure=False)


@takes(2)
def _python_function(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    return ir.CallPacked(
        **head,
        name=str(getattr(arguments[0], "value", "a Python function")),
        arguments=_literal_tuple(context, arguments[1]),
        ownership=ir.Ownership.UNKNOWN,
        pure=False,
    )


def _closure(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    return context.not_understood(head, "a closure", _tensor_arguments(call))


# -- operators with a meaning of their own -----------------------------------------------------------------


def _reshape(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    if context.module.lowered:
        return reshape(context, head, call, arguments)
    return ir.CallOperator(**head, name="relax.reshape", arguments=context.operands(arguments))


_OPERATORS: Mapping[str, Handler] = {
    **MEMORY_OPERATORS,
    "relax.assert_op": assertion,
    "relax.call_builtin_with_ctx": _with_context,
    "relax.call_dps_packed": _destination_passing,
    "relax.call_inplace_packed": _inplace_packed,
    "relax.call_pure_packed": _pure_packed,
    "relax.call_py_func": _python_function,
    "relax.call_tir": _call_tir,
    "relax.call_tir_inplace": _call_tir,
    "relax.call_tir_with_grad": _call_tir,
    "relax.invoke_closure": _closure,
    "relax.invoke_pure_closure": _closure,
    "relax.make_closure": _closure,
    "relax.reshape": _reshape,
    # these mark a value and may hand on its memory
    "relax.builtin.stop_lift_params": same_value,
    "relax.grad.end_checkpoint": same_value,
    "relax.grad.no_grad": same_value,
    "relax.grad.start_checkpoint": same_value,
    "relax.hint_on_device": same_value,
    "relax.wrap_param": same_value,
}
# attributes that rules ask for
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {"relax.take": ("axis", "mode")}

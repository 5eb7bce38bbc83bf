"""Packed functions: what is known of those in TVM's runtime, and of any other by its declared result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import ir

from symalloc.program.model import (
    Alias,
    Assert,
    CallFunction,
    CallKernel,
    CallPacked,
    Instruction,
    MakeTuple,
    Ownership,
    TakeField,
)
from symalloc.program.types import Type
from symalloc.relax.extract.context import Context, Handler, Head, not_a_size, takes
from symalloc.relax.extract.memory_operators import (
    ensure_zero_offset,
    place_tensor,
    reserve_vm_storage,
    reshape,
    take_view,
)
from symalloc.relax.extract.types import holds_memory
from symalloc.relax.ir_types import CallNode, Node, elements


def call_packed(
    context: Context, head: Head, call: CallNode, name: str, arguments: Sequence[Node], *, pure: bool
) -> Instruction:
    """A call of the packed function `name` with TVM's `arguments`; raises NotASizeError."""
    special = _SPECIAL.get(name)
    if special is not None:
        return special(context, head, call, arguments)
    kernel = context.module.symbols.get(name)
    if kernel is not None:
        return CallKernel(**head, kernel=kernel, arguments=context.operands(arguments))
    if name in _CLOSURES:
        return context.not_understood(head, "a call of a closure", arguments)
    return CallPacked(
        **head,
        name=name,
        arguments=context.operands(arguments),
        ownership=_ownership(name, head["var"].type),
        pure=pure or name in _READ_ONLY,
        writes=_WRITES.get(name, frozenset()),
        may_capture=not pure and name not in _KEEPS_NOTHING,
    )


def _ownership(name: str, result: Type) -> Ownership:
    if not holds_memory(result) or name in _FRESH:
        return Ownership.FRESH
    return Ownership.ARGUMENT if name in _RETURNS_ARGUMENT else Ownership.UNKNOWN


@takes(1)
def _assert(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> Instruction:
    return Assert(**head, condition=context.condition(arguments[0]))


@takes(1)
def _alias(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> Instruction:
    return Alias(**head, source=context.operand(arguments[0]))


def _make_tuple(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> Instruction:
    return MakeTuple(**head, fields=context.operands(arguments))


@takes(2)
def _take_field(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> Instruction:
    index = context.constant(arguments[1], "a tuple index")
    return TakeField(**head, source=context.operand(arguments[0]), index=index)


@takes(2)
def _run_or_capture(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> Instruction:
    """A CUDA graph over (function, tuple of its arguments, …): the function, called with them."""
    packed = arguments[1]
    if type(packed) is not ir.Tuple:
        not_a_size("arguments that are no tuple literal")
    inner = context.operands(elements(packed.fields))
    return CallFunction(**head, name=_function_name(context, arguments[0]), arguments=inner)


@takes(1)
def _cached_allocation(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> Instruction:
    """(function, …): what the function allocates, kept from the first call on."""
    return CallFunction(**head, name=_function_name(context, arguments[0]), arguments=(), kept=True)


def _function_name(context: Context, callee: Node) -> str:
    if type(callee) is not ir.GlobalVar or callee.name_hint not in context.module.functions:
        not_a_size("a callee that is no function of the module")
    return str(callee.name_hint)


_SPECIAL: Mapping[str, Handler] = {
    "relax.run.assert_op": _assert,
    "runtime.TVMTensorCreateView": take_view,
    "vm.builtin.alloc_storage": reserve_vm_storage,
    "vm.builtin.alloc_tensor": place_tensor,
    "vm.builtin.cuda_graph.get_cached_alloc": _cached_allocation,
    "vm.builtin.cuda_graph.run_or_capture": _run_or_capture,
    "vm.builtin.copy": _alias,  # despite its name it returns its argument
    "vm.builtin.ensure_zero_offset": ensure_zero_offset,
    "vm.builtin.make_tuple": _make_tuple,
    "vm.builtin.reshape": reshape,
    "vm.builtin.tuple_getitem": _take_field,
}
_CLOSURES = frozenset({"vm.builtin.invoke_closure", "vm.builtin.make_closure"})
# The lists below follow the definitions in TVM's runtime (src/runtime/vm/*.cc, relax/op/{base,set}.py).
_FRESH = frozenset(
    {
        "relax.run.nonzero",
        "relax.run.shape_to_tensor",
        "relax.run.unique",
        "vm.builtin.alloc_shape_heap",
        "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
        "vm.builtin.attention_kv_cache_attention_with_shared_kv",
        "vm.builtin.attention_kv_cache_cross_attention",
        "vm.builtin.attention_kv_cache_create",
        "vm.builtin.attention_kv_cache_self_attention",
        "vm.builtin.multinomial_from_uniform",
        "vm.builtin.null_value",
        "vm.builtin.paged_attention_kv_cache_create",
        "vm.builtin.rnn_state_create",
        "vm.builtin.to_device",
    }
)
_RETURNS_ARGUMENT = frozenset(
    {
        "vm.builtin.attention_kv_cache_append",
        "vm.builtin.attention_kv_cache_append_mla_kv",
        "vm.builtin.attention_kv_cache_merge_attn_output_inplace",
        "vm.builtin.attention_kv_cache_update",
        "vm.builtin.attention_kv_cache_window_override",
        "vm.builtin.attention_kv_cache_window_override_with_sinks",
        "vm.builtin.rnn_state_set",
    }
)
_READ_ONLY = frozenset(
    {
        "relax.run.nonzero",
        "relax.run.print",
        "relax.run.shape_to_tensor",
        "relax.run.unique",
        "vm.builtin.check_func_info",
        "vm.builtin.check_prim_value_info",
        "vm.builtin.check_shape_info",
        "vm.builtin.check_string_info",
        "vm.builtin.check_tensor_info",
        "vm.builtin.check_tuple_info",
        "vm.builtin.debug_print",
        "vm.builtin.match_prim_value",
        "vm.builtin.match_shape",
        "vm.builtin.multinomial_from_uniform",
        "vm.builtin.read_if_cond",
        "vm.builtin.sample_top_p_from_logits",
        "vm.builtin.shape_of",
        "vm.builtin.tensor_to_shape",
        "vm.builtin.to_device",
    }
)
# argument indices that these write; what is not here is judged by purity alone
_WRITES: Mapping[str, frozenset[int]] = {
    "vm.builtin.apply_presence_and_frequency_penalty": frozenset({0}),
    "vm.builtin.apply_repetition_penalty": frozenset({0}),
    "vm.builtin.apply_softmax_with_temperature": frozenset({0}),
    "vm.builtin.attention_kv_cache_attention_with_fused_qkv": frozenset({4}),
    "vm.builtin.attention_kv_cache_attention_with_shared_kv": frozenset({5}),
    "vm.builtin.attention_kv_cache_cross_attention": frozenset({4, 5}),
    "vm.builtin.attention_kv_cache_merge_attn_output_inplace": frozenset({1, 2}),
    "vm.builtin.attention_kv_cache_self_attention": frozenset({6, 7}),
}
_KEEPS_NOTHING = _FRESH | _RETURNS_ARGUMENT | _READ_ONLY | _WRITES.keys()

"""The effects of TVM's packed functions and operators on memory: the one place to say them.

A function that is not listed here is judged by its declared result: it may return, capture, and (unless it is
pure) write whatever it is given.  The rows follow the definitions in TVM's runtime (src/runtime/vm/*.cc,
relax/op/{base,set}.py).  A function that is an operation of the program itself (a view, a tuple, a storage)
is translated in `symalloc.relax.extract.calls`, whatever stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from symalloc.program.ir import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFunction:
    """The known effects of one packed function.

    `ownership` is that of its result.  `writes` holds the indices of the arguments that it is known to write,
    `fills` those of them whose content before it does not read; `reads_only`: it writes none.  `looks`: it
    reads no element of any, only shapes and types.  `may_capture`: it may hold on to an argument when it is
    over.
    `byte_offset`: whether it adds the byte offset of a tensor to its pointer (or looks at no element).
    `allocates`: it may take memory of the virtual machine.
    """

    ownership: Ownership = Ownership.UNKNOWN
    writes: frozenset[int] = frozenset()
    fills: frozenset[int] = frozenset()
    reads_only: bool = False
    looks: bool = False
    may_capture: bool = False
    byte_offset: Literal["respected", "ignored", "unknown"] = "unknown"
    allocates: bool = True


def packed_function(name: str) -> PackedFunction:
    """The known effects of the packed function `name`."""
    found = _PACKED_FUNCTIONS.get(name)
    if found is None:
        found = next((row for prefix, row in _FAMILIES.items() if name.startswith(prefix)), _UNKNOWN)
    return found


# operators that are there still where memory is planned: they look at shapes, or copy to another device
OPERATORS_THAT_CAPTURE_NOTHING = frozenset(
    {
        "relax.shape_of",
        "relax.shape_to_tensor",
        "relax.size",
        "relax.tensor_to_shape",
        "relax.to_vdevice",
    }
)

# the arguments of operators that are looked at for their shape and type alone
SHAPE_ARGUMENTS: Mapping[str, frozenset[int]] = {
    "relax.collapse_sum_like": frozenset({1}),
    **dict.fromkeys(
        (
            *(f"relax.{name}_like" for name in ("eye", "full", "ones", "zeros")),
            *(f"relax.inspect.tensor_{name}" for name in ("byte_offset", "elem_offset", "ndim", "shape_i")),
            *(f"relax.inspect.tensor_{name}" for name in ("dtype_bits", "dtype_code", "dtype_lanes")),
            *("relax.inspect.tensor_stride_i", "relax.shape_of", "relax.size"),
        ),
        frozenset({0}),
    ),
}

# operators that may read only some elements of their operands: which ones is not known here
READS_SOME = frozenset(
    (
        *(
            f"relax.{name}"
            for name in ("dynamic_strided_slice", "gather_elements", "gather_nd", "index_tensor")
        ),
        *(f"relax.{name}" for name in ("strided_slice", "take", "tril", "triu", "where")),
        *(f"relax.image.{name}" for name in ("grid_sample", "resize2d", "resize3d")),
        *(f"relax.nn.{name}{n}d" for name in ("avg_pool", "conv", "max_pool") for n in (1, 2, 3)),
        "relax.vision.roi_pool",
    )
)

_UNKNOWN = PackedFunction(may_capture=True)
_FRESH = PackedFunction(ownership=Ownership.FRESH)
_ARGUMENT = PackedFunction(ownership=Ownership.ARGUMENT)
_READS = PackedFunction(reads_only=True)
_FRESH_READS = PackedFunction(ownership=Ownership.FRESH, reads_only=True)
_FRESH_RESPECTS = PackedFunction(ownership=Ownership.FRESH, reads_only=True, byte_offset="respected")
_LOOKS = PackedFunction(reads_only=True, looks=True)
_PRINTS = PackedFunction(reads_only=True, byte_offset="respected")
_CHECKS = PackedFunction(reads_only=True, allocates=False)
_CHECKS_TENSORS = PackedFunction(reads_only=True, looks=True, byte_offset="respected", allocates=False)
_IGNORES = PackedFunction(reads_only=True, byte_offset="ignored")


def _updates(*indices: int, ownership: Ownership = Ownership.UNKNOWN) -> PackedFunction:
    return PackedFunction(writes=frozenset(indices), ownership=ownership)


def _fills(*indices: int) -> PackedFunction:
    filled = frozenset(indices)
    return PackedFunction(writes=filled, fills=filled, ownership=Ownership.FRESH)


_PACKED_FUNCTIONS: Mapping[str, PackedFunction] = {
    "tvm.contrib.sort.argsort": replace(_fills(1), byte_offset="ignored"),
    "tvm.contrib.sort.argsort_nms": replace(_fills(2), byte_offset="ignored"),
    "tvm.contrib.sort.sort": replace(_fills(1), byte_offset="ignored"),
    "tvm.contrib.sort.topk": replace(_fills(1, 2), byte_offset="ignored"),
    "relax.run.assert_op": PackedFunction(reads_only=True, allocates=False),
    "relax.run.nonzero": _FRESH_RESPECTS,
    "relax.run.print": _PRINTS,
    "relax.run.shape_to_tensor": _FRESH_READS,
    "relax.run.unique": _FRESH_RESPECTS,
    "vm.builtin.alloc_shape_heap": _FRESH,
    "vm.builtin.apply_presence_and_frequency_penalty": _updates(0),
    "vm.builtin.apply_repetition_penalty": _updates(0),
    "vm.builtin.apply_softmax_with_temperature": _updates(0),
    "vm.builtin.attention_kv_cache_append": _ARGUMENT,
    "vm.builtin.attention_kv_cache_append_mla_kv": _ARGUMENT,
    "vm.builtin.attention_kv_cache_attention_with_fused_qkv": _fills(4),
    "vm.builtin.attention_kv_cache_attention_with_shared_kv": _fills(5),
    "vm.builtin.attention_kv_cache_create": _FRESH,
    "vm.builtin.attention_kv_cache_cross_attention": _fills(4, 5),
    "vm.builtin.attention_kv_cache_merge_attn_output_inplace": _updates(1, 2, ownership=Ownership.ARGUMENT),
    "vm.builtin.attention_kv_cache_self_attention": _fills(6, 7),
    "vm.builtin.attention_kv_cache_update": _ARGUMENT,
    "vm.builtin.attention_kv_cache_window_override": _ARGUMENT,
    "vm.builtin.attention_kv_cache_window_override_with_sinks": _ARGUMENT,
    "vm.builtin.check_func_info": _LOOKS,
    "vm.builtin.check_prim_value_info": _LOOKS,
    "vm.builtin.check_shape_info": _CHECKS,
    "vm.builtin.check_string_info": _LOOKS,
    "vm.builtin.check_tensor_info": _CHECKS_TENSORS,
    "vm.builtin.check_tuple_info": _LOOKS,
    "vm.builtin.debug_print": _PRINTS,
    "vm.builtin.make_prim_value": _CHECKS,
    "vm.builtin.make_shape": _CHECKS,
    "vm.builtin.match_prim_value": _CHECKS,
    "vm.builtin.match_shape": _CHECKS_TENSORS,
    "vm.builtin.multinomial_from_uniform": _FRESH_READS,
    "vm.builtin.null_value": PackedFunction(
        ownership=Ownership.FRESH, byte_offset="respected", allocates=False
    ),
    "vm.builtin.paged_attention_kv_cache_create": _FRESH,
    "vm.builtin.read_if_cond": _IGNORES,
    "vm.builtin.reshape": _CHECKS,
    "vm.builtin.rnn_state_create": _FRESH,
    "vm.builtin.rnn_state_set": _ARGUMENT,
    "vm.builtin.sample_top_p_from_logits": _READS,
    "vm.builtin.shape_of": PackedFunction(reads_only=True, looks=True, byte_offset="respected"),
    "vm.builtin.tensor_to_shape": _IGNORES,
    "vm.builtin.to_device": _FRESH_RESPECTS,
    "vm.builtin.tuple_reset_item": _CHECKS_TENSORS,
}
# by the beginning of their names
_FAMILIES: Mapping[str, PackedFunction] = {
    "tvm.contrib.sort.": PackedFunction(may_capture=True, byte_offset="ignored"),
}

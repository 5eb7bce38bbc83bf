"""The memory operators of both dialects, R.memory.* and R.vm.*, R.builtin.alloc_tensor, and what packed
functions share with operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import tvm

from symalloc.program import ir
from symalloc.program.record import by_position
from symalloc.program.types import DType, TensorType, is_open
from symalloc.relax.extract.context import VARIABLES, Context, Handler, Head, not_a_size, takes
from symalloc.relax.extract.type_conversion import to_dtype
from symalloc.relax.ir_types import CallNode, Node, elements
from symalloc.size.expr import ZERO, Expr, product

_made_fresh = by_position(ir.AllocFresh)


def _reserve_storage(
    context: Context,
    head: Head,
    dialect: Literal["memory", "vm"],
    *,
    size: Node,
    device: Node,
    scope: Node,
    dtype: Node,
) -> ir.Instruction:
    """A storage; the R.vm dialect counts its size in elements of `dtype`, R.memory in bytes."""
    element = to_dtype(context.dtype_of(dtype))
    extents = context.types.shape_or_none(size)
    total: Expr | None = None if extents is None else product(extents)
    if total is not None and dialect == "vm":
        total = None if element is None else total * element.itemsize
    return ir.AllocStorage(
        **context.storage_head(head),
        size=total,
        device=context.constant(device, "a device index"),
        scope=context.text(scope, "a memory scope"),
        dtype=element,
        dialect=dialect,
    )


@takes(4)
def place_tensor(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    """A tensor on a storage: (storage, offset, shape, dtype, device = 0)."""
    shape, dtype = _placed_shape(context, arguments[2]), _known_dtype(context, arguments[3])
    return ir.AllocTensor(
        **(
            context.known_head(head, TensorType(shape=shape, dtype=dtype))
            if is_open(head["var"].type)
            else head
        ),
        storage=context.operand(arguments[0]),
        offset=context.form.expr(arguments[1]),
        shape=shape,
        dtype=dtype,
        device=context.constant(arguments[4], "a device index") if len(arguments) > 4 else 0,
    )


def _placed_shape(context: Context, node: Node) -> tuple[Expr, ...] | None:
    types = context.types
    return types.shape_or_none(node) if context.module.open_shapes else types.shape(node)


def _known_dtype(context: Context, node: Node) -> DType:
    found = to_dtype(context.dtype_of(node))
    return not_a_size("a tensor of unknown dtype") if found is None else found


@takes(4)
def _memory_storage(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    size, device, scope, dtype = (arguments[i] for i in range(4))
    return _reserve_storage(context, head, "memory", size=size, device=device, scope=scope, dtype=dtype)


@takes(4)
def reserve_vm_storage(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    """R.vm.alloc_storage and vm.builtin.alloc_storage: (size, device, dtype, scope)."""
    size, device, dtype, scope = (arguments[i] for i in range(4))
    return _reserve_storage(context, head, "vm", size=size, device=device, scope=scope, dtype=dtype)


@takes(3)
def fresh_tensor(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    """R.builtin.alloc_tensor: (shape, dtype, device, scope = "global")."""
    shape = context.types.shape_or_none(arguments[0])
    return _made_fresh(
        *head.values(),
        shape,
        _known_dtype(context, arguments[1]),
        context.constant(arguments[2], "a device index"),
        context.text(arguments[3], "a memory scope") if len(arguments) > 3 else "global",
        context.types.inexact(arguments[0]) if shape is None else "",
    )


def _kill(kind: Literal["tensor", "storage", "object"]) -> Handler:
    @takes(1)
    def handler(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
        return ir.Kill(**head, target=context.operand(arguments[0]), kind=kind)

    return handler


@takes(1)
def take_view(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    """R.memory.view(data, shape, dtype, relative_byte_offset); what is left out stays as in the source."""
    absent = context.is_absent
    given = [None if i >= len(arguments) or absent(arguments[i]) else arguments[i] for i in (1, 2, 3)]
    shape, dtype, offset = given
    result = head["var"].type
    same_dtype = result.dtype if isinstance(result, TensorType) else None
    return ir.View(
        **head,
        source=context.operand(arguments[0]),
        shape=context.known_extents(head["var"]) if shape is None else context.types.shape(shape),
        dtype=same_dtype if dtype is None else to_dtype(context.dtype_of(dtype)),
        offset=ZERO if offset is None else context.form.expr(offset),
        kind="view",
    )


@takes(1)
def ensure_zero_offset(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    """The same bytes where the offset is a multiple of 64, else a copy."""
    return _same_bytes(context, head, arguments[0], context.known_extents(head["var"]), "ensure_zero_offset")


@takes(2)
def reshape(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    """vm.builtin.reshape, or R.reshape once operators are lowered: other extents, the same elements."""
    return _same_bytes(context, head, arguments[0], context.types.shape(arguments[1]), "reshape")


def _same_bytes(
    context: Context,
    head: Head,
    source: Node,
    shape: tuple[Expr, ...] | None,
    kind: Literal["reshape", "ensure_zero_offset"],
) -> ir.Instruction:
    result = head["var"].type
    dtype = result.dtype if isinstance(result, TensorType) else None
    return ir.View(**head, source=context.operand(source), shape=shape, dtype=dtype, offset=ZERO, kind=kind)


@takes(2)
def _call_kernel_dynamically(
    context: Context, head: Head, call: CallNode, arguments: Sequence[Node]
) -> ir.Instruction:
    """R.vm.call_tir_dyn(kernel, (tensors…, shape)): the extents of the last argument become scalars."""
    callee, packed = arguments[0], arguments[1]
    if type(packed) is not tvm.ir.Tuple or len(packed.fields) == 0:
        not_a_size("R.vm.call_tir_dyn with arguments that are no tuple literal")
    *tensors, shape = elements(packed.fields)
    scalars = tuple(ir.Scalar(extent) for extent in context.types.shape(shape))
    if type(callee) is not tvm.ir.GlobalVar or callee.name_hint not in context.module.kernels:
        not_a_size("R.vm.call_tir_dyn of a function that is no PrimFunc of the module")
    return ir.CallKernel(**head, kernel=callee.name_hint, arguments=context.operands(tensors) + scalars)


@takes(1)
def assertion(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    """R.assert_op and relax.run.assert_op: the first argument holds afterwards, the others are printed."""
    reads = [a for a in arguments if type(a) in VARIABLES and not isinstance(a.ty, tvm.ir.PrimType)]
    return ir.Assert(**head, condition=context.condition(arguments[0]), reads=context.operands(reads))


@takes(1)
def same_value(context: Context, head: Head, call: CallNode, arguments: Sequence[Node]) -> ir.Instruction:
    """A call that returns its first argument."""
    return ir.Alias(**head, source=context.operand(arguments[0]))


MEMORY_OPERATORS: Mapping[str, Handler] = {
    "relax.memory.alloc_storage": _memory_storage,
    "relax.memory.alloc_tensor": place_tensor,
    "relax.memory.kill_storage": _kill("storage"),
    "relax.memory.kill_tensor": _kill("tensor"),
    "relax.memory.view": take_view,
    "relax.memory.ensure_zero_offset": ensure_zero_offset,
    "relax.vm.alloc_storage": reserve_vm_storage,
    "relax.vm.alloc_tensor": place_tensor,
    "relax.vm.kill_object": _kill("object"),
    "relax.vm.call_tir_dyn": _call_kernel_dynamically,
    "relax.builtin.alloc_tensor": fresh_tensor,
}

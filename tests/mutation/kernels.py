"""What a PrimFunc writes, read off TVM's own tree; its buffers declared at other offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm.tirx.buffer import BufferType

__all__ = ["takes_offset", "with_offset_factor", "written_parameters"]


def written_parameters(function: Any) -> list[int]:
    """The positions of the parameters that a kernel stores to, or hands as a whole to an intrinsic."""
    buffers = [p if type(p.ty).__name__ == "BufferType" else None for p in function.params]
    written = {hash(buffer) for buffer in _written(function.body)}
    return [
        position for position, buffer in enumerate(buffers) if buffer is not None and hash(buffer) in written
    ]


def _written(node: Any) -> Iterator[Any]:
    kind = type(node).__name__
    if kind == "BufferStore":
        yield node.buffer
        yield from _within(node.value)
        yield from _within(node.indices)
    elif kind == "SBlock":
        yield from _written(node.init)
        yield from _written(node.body)
    elif kind == "TensorLoad":
        yield from _within(node.indices)
    elif kind == "Var":
        yield node
    else:
        yield from _within(node)


def _within(node: Any) -> Iterator[Any]:
    if node is None or isinstance(node, (int, float, str, bool)):
        return
    if type(node).__name__ in ("Array", "list", "tuple"):
        for item in node:
            yield from _written(item)
        return
    info = getattr(type(node), "__tvm_ffi_type_info__", None)
    for field in info.fields if info is not None else ():
        if field.name not in ("span", "ty", "reads", "writes"):
            yield from _written(getattr(node, field.name, None))


def takes_offset(param: Any) -> bool:
    """Whether a parameter is a buffer at an offset that the caller chooses."""
    return isinstance(param.ty, BufferType) and type(param.ty.elem_offset).__name__ == "Var"


def with_offset_factor(kernel: Any, position: int, times: int | None) -> Any:
    """`kernel` with one buffer declared at `times` its distance of offsets, or at byte 0 where that is
    None.
    """
    old = kernel.params[position]
    ty = old.ty
    offset, factor = ty.elem_offset, int(ty.offset_factor) * (times or 1)
    if times is None:
        offset, factor = tvm.tirx.const(0, "int64"), 0
    new = tvm.ir.Var(
        old.name,
        BufferType(
            *(ty.dtype, ty.storage_scope, ty.shape, ty.strides),
            *(offset, ty.data_alignment, factor, ty.layout, ty.allocated_addr),
        ),
    )
    params = [new if index == position else param for index, param in enumerate(kernel.params)]
    body = tvm_ffi.structural_map(kernel.body, (tvm.ir.Var, lambda var: new if var.same_as(old) else var))
    return tvm.tirx.PrimFunc(params, body, kernel.ret_type, kernel.attrs, kernel.span)

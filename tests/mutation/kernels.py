"""What a PrimFunc writes, read off TVM's own tree; its buffers declared at other offsets."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm.tirx.buffer import BufferType

__all__ = ["kernels_of", "nodes", "takes_offset", "with_offset_factor", "written_parameters"]


def kernels_of(mod: tvm.IRModule) -> dict[str, Any]:
    """The PrimFuncs of a module by name."""
    functions = mod.functions_items()
    return {str(name.name_hint): f for name, f in functions if isinstance(f, tvm.tirx.PrimFunc)}


def nodes(root: Any, kind: type) -> list[Any]:
    """The nodes of a kind, in the order in which TVM maps them."""
    found: list[Any] = []

    def note(node: Any) -> Any:
        found.append(node)
        return node

    tvm_ffi.structural_map(root, (kind, note))
    return found


def written_parameters(function: Any) -> list[int]:
    """The positions of the parameters that a kernel stores to, or hands as a whole to an intrinsic."""
    written = [store.buffer for store in nodes(function.body, tvm.tirx.BufferStore)]
    written += [a for call in nodes(function.body, tvm.ir.Call) for a in call.args if type(a) is tvm.ir.Var]
    return [
        position
        for position, param in enumerate(function.params)
        if isinstance(param.ty, BufferType) and any(param.same_as(one) for one in written)
    ]


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

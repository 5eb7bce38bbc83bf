"""What a PrimFunc does to its buffers, read off TVM's own tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm.tirx.buffer import BufferType

__all__ = ["Access", "Kernel", "Parameter", "read_off", "takes_offset", "with_offset_factor"]


@dataclass(slots=True)
class Access:
    """Whether a buffer's first access is a read (`needs`), and whether it is `written`."""

    needs: bool = False
    written: bool = False

    def read(self) -> None:
        """Note a read."""
        self.needs = self.needs or not self.written

    def write(self) -> None:
        """Note a write."""
        self.written = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a kernel: a scalar where `shape` is None, otherwise a buffer.

    `step`: the bytes that its offset must be a multiple of; 0 where it takes none.
    """

    var: Any
    shape: tuple[Any, ...] | None
    dtype: str
    needs: bool = False
    written: bool = False
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A PrimFunc: its parameters in order, and the conditions that it asserts before anything else."""

    parameters: tuple[Parameter, ...]
    asserted: tuple[Any, ...] = ()


def read_off(function: Any) -> Kernel:
    """What the interpreter has to know of `function`."""
    return Kernel(parameters=_parameters(function), asserted=tuple(_asserted(function.body)))


def _asserted(body: Any) -> Iterator[Any]:
    """The conditions of the assertions that stand in front."""
    for statement in body.seq if type(body).__name__ == "SeqStmt" else (body,):
        if type(statement).__name__ != "AssertStmt":
            return
        yield statement.condition


def _parameters(function: Any) -> tuple[Parameter, ...]:
    buffers = [p for p in function.params if type(p.ty).__name__ == "BufferType"]
    accesses = {_key(p): Access() for p in buffers}
    _walk(function.body, accesses)
    return tuple(_parameter(p, accesses.get(_key(p))) for p in function.params)


def _parameter(var: Any, access: Access | None) -> Parameter:
    if access is None:
        return Parameter(var=var, shape=None, dtype=str(var.ty.dtype))
    kind = var.ty.dtype.dtype
    free = type(var.ty.elem_offset).__name__ == "Var"
    return Parameter(
        var=var,
        shape=tuple(var.ty.shape),
        dtype=str(var.ty.dtype.dtype),
        needs=access.needs,
        written=access.written,
        step=max(int(var.ty.offset_factor), 1) * ((kind.bits * kind.lanes + 7) // 8) if free else 0,
    )


def _key(var: Any) -> int:
    return hash(var)


def _walk(node: Any, accesses: dict[int, Access]) -> None:
    kind = type(node).__name__
    if kind == "BufferStore":
        for part in (node.value, node.indices):
            _walk(part, accesses)
        if access := accesses.get(_key(node.buffer)):
            access.write()
        return
    if kind == "SBlock":
        for part in (node.init, node.body):
            _walk(part, accesses)
        return
    if kind == "TensorLoad":
        if access := accesses.get(_key(node.source)):
            access.read()
        _walk(node.indices, accesses)
        return
    if kind == "Var":  # the buffer as a whole, handed to an intrinsic that may do anything with it
        if access := accesses.get(_key(node)):
            access.read()
            access.write()
        return
    _walk_children(node, accesses)


def _walk_children(node: Any, accesses: dict[int, Access]) -> None:
    if node is None or isinstance(node, (int, float, str, bool)):
        return
    info = getattr(type(node), "__tvm_ffi_type_info__", None)
    names = (
        []
        if info is None
        else [f.name for f in info.fields if f.name not in ("span", "ty", "reads", "writes")]
    )
    if names:
        for name in names:
            _walk(getattr(node, name, None), accesses)
    elif type(node).__name__ in ("Array", "list", "tuple"):
        for item in node:
            _walk(item, accesses)


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

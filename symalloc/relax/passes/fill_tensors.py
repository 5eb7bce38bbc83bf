"""Filling tensors when they are allocated, so that what is computed from unwritten memory shows.

Two runs that differ only in what new tensors hold give other results where a kernel reads what nothing has
written: a maximum over no elements, a result that is left unwritten in part.
"""

from __future__ import annotations

import ctypes
from typing import Literal, TypeAlias

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, TupleType

from symalloc.relax.ir_types import BindingNode, CallNode
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_body

Filling: TypeAlias = Literal[0, 1]

_FUNCTION = "symalloc.run.fill"
_ALLOCATION = "relax.builtin.alloc_tensor"
_FLOATS = (0.75, -24.25)  # either sign, so that neither a maximum nor a rectifier hides them
_BYTES = (0x3F, 0xC1)  # of element types that NumPy has not: numbers as well


def filled(lowered: tvm.IRModule, filling: Filling) -> tvm.IRModule:
    """`lowered`, as CallTIRRewrite leaves it, with each new tensor filled with the same number at once."""
    tvm.register_global_func(_FUNCTION, _fill, override=True)
    return map_functions(lowered, lambda _, f: with_body(f, _Filler(filling=filling).sequence(f.body)))


class _Filler(BindingRewriter):
    def __init__(self, *, filling: Filling) -> None:
        super().__init__()
        self.filling = filling

    def rewrite(self, binding: BindingNode) -> list[relax.Binding]:
        """The binding, and behind an allocation a call that fills it."""
        found = list(super().rewrite(binding))
        if isinstance(binding.value, Call) and _name(binding.value) == _ALLOCATION:
            arguments = [binding.var, relax.prim_value(self.filling)]
            call = Call(relax.ExternFunc(_FUNCTION), arguments, ty_args=[TupleType([])])
            found.append(self.bind("_", call))
        return found


def _name(call: CallNode) -> str | None:
    return getattr(call.op, "name", None)


def _fill(tensor: tvm.runtime.Tensor, filling: int) -> None:
    """Integers become 0 or 1, which are in range wherever they are indices."""
    dtype = str(tensor.dtype)
    kind = tvm.DataType(dtype)
    nbytes = tensor.numel() * ((kind.bits * kind.lanes + 7) // 8)
    if not nbytes:
        return
    memory = (ctypes.c_char * nbytes).from_address(tensor.data_ptr())
    try:
        elements = np.frombuffer(memory, dtype=np.dtype(dtype))
    except TypeError:
        np.frombuffer(memory, dtype=np.uint8)[:] = _BYTES[filling]
        return
    elements[:] = _FLOATS[filling] if elements.dtype.kind in "fc" else filling

"""An arena within a function that is being written: how it is reserved, and how a tensor is placed in it.

Calls say their types, for TVM to infer nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import DataType, relax
from tvm.ir import GenericConst, Op, StringImm

from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    PrimNode,
    TypeNode,
    VarNode,
    bound,
    typed_call,
    typed_var,
)

# what LowerRuntimeBuiltin makes of R.memory.view.  That operator's type inference compares the view with
# the arena by TVM's analyser: up to 50 ms a tensor, and again in every pass that visits it
VIEW = "runtime.TVMTensorCreateView"
VIEWED = relax.ExternFunc(VIEW)

BYTE = GenericConst(DataType("uint8"), relax.AnyType())

_ALLOC_STORAGE = Op.get("relax.memory.alloc_storage")
_ALLOC_TENSOR = Op.get("relax.memory.alloc_tensor")
_STORAGE = relax.AnyType()


@dataclass(frozen=True, slots=True)
class ArenaHandle:
    """An arena in the function: a storage of its own, or the tensor that the caller brings."""

    var: VarNode
    brought: bool = False

    def place(
        self,
        offset: PrimNode,
        shape: Node,
        dtype: Node,
        device: PrimNode,
        type_: TypeNode,
        span: Node | None = None,
    ) -> Node:
        """The call that gives the tensor of `type_` at `offset` bytes; `span`: the place it comes from."""
        if self.brought:
            return typed_call(VIEWED, [self.var, shape, dtype, offset], type_, [type_], span)
        return typed_call(_ALLOC_TENSOR, [self.var, offset, shape, dtype, device], type_, span=span)


def reserved(size: PrimNode, device: int, scope: str) -> BindingNode:
    """The binding of a new storage of `size` bytes."""
    given = [relax.ShapeExpr([size]), relax.prim_value(device), StringImm(scope), BYTE]
    return bound(typed_var("arena", _STORAGE), typed_call(_ALLOC_STORAGE, given, _STORAGE))

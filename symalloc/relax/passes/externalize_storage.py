"""ExternalizeStorage: a program that takes its memory from a function, by way of tvm-ffi's tensors alone.

The second way to a pool: no allocator of the virtual machine is replaced, and nothing of TVM's own objects
need be known.
"""

from __future__ import annotations

from functools import partial

import tvm
from tvm import relax
from tvm.ir import Call, StringImm

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.arguments import shown
from symalloc.native.native_functions import pool_functions
from symalloc.pool.core.native_pool import NativePool
from symalloc.pool.core.pool_errors import PoolUsageError
from symalloc.pool.core.pool_options import require_name
from symalloc.relax.ir_types import BindingNode, CallNode, Node, TypeNode, VarNode
from symalloc.relax.passes.storage_rewriter import StorageRewriter, builtin_arguments, rewrite_storages

TAKE = "symalloc.pool.take"


_registered: dict[str, NativePool] = {}  # with their callbacks


def register_pool(pool: NativePool, name: str = TAKE) -> None:
    """Registers `pool` as what programs behind `ExternalizeStorage(name)` take their memory from.

    It replaces the pool that was registered under `name` before; machines that were made then keep that one.
    The pool lives as long as it is registered.  Raises PoolUsageError for what is no pool, or no name.
    """
    given: object = pool
    if not isinstance(given, NativePool):
        raise PoolUsageError(f"register_pool takes a pool, not {shown(pool)}")
    _require_global(name)
    pool_functions.serve(pool.object, name)
    _registered[name] = pool


def _require_global(name: object) -> None:
    if not require_name(name, "the name of a global function"):
        raise PoolUsageError("the name of a global function is empty")


@tvm.transform.module_pass(opt_level=0, name="ExternalizeStorage")
class ExternalizeStorage:
    """Take each storage from the global function `name`, and each tensor on it from `name + ".place"`.

    `name(shape, tag, escapes)` gives a tensor of bytes with that shape (`escapes`: 1 where it may outlive the
    call), `.place(memory, offset, shape, dtype, tag)` a tensor at `offset` bytes of it, which keeps it;
    `register_pool` registers both.  Storages of other devices than the first, or of other scopes than
    `global`, stay.  Stands in front of VMShapeLower, best behind the planner.  Raises PoolUsageError for what
    is no name.
    """

    def __init__(self, name: str = TAKE) -> None:
        _require_global(name)
        self.name = name

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its allocations rewritten; nothing else changes."""
        return rewrite_storages(module, partial(_Externalizer, take=self.name))


class _Externalizer(StorageRewriter):
    """Rewrites one function."""

    def __init__(self, function: relax.Function, analysis: FunctionAnalysis, take: str) -> None:
        super().__init__(function, analysis)
        self.take = take
        self.taken: set[Node] = set()

    def storage(self, binding: BindingNode, call: CallNode) -> list[Node]:
        var, nbytes = binding.var, _bytes(call)
        if nbytes is None:
            return [binding]
        self.taken.add(var)
        arguments = [nbytes, StringImm(self.tag(binding)), relax.prim_value(int(self.escapes(binding)))]
        return [self._call(var, self.take, arguments, var.ty)]

    def tensor(self, binding: BindingNode, call: CallNode) -> list[Node]:
        var = binding.var
        if call.args[0] not in self.taken:
            return [binding]
        arguments = [*call.args[:4], StringImm(self.tag(binding))]
        return [self._call(var, f"{self.take}.place", arguments, call.ty)]

    def _call(self, var: VarNode, function: str, arguments: list[Node], type_: TypeNode) -> Node:
        if self.late:
            return relax.VarBinding(var, Call(relax.ExternFunc(function), arguments, ty_args=[type_]))
        return relax.VarBinding(var, relax.op.call_pure_packed(function, *arguments, ty_args=[type_]))


def _bytes(call: CallNode) -> Node | None:
    """The shape of the bytes of a storage; None where it is not to be rewritten."""
    extents, device, dtype, scope = builtin_arguments(call)
    if int(device.value) != 0 or scope.value not in ("", "global"):
        return None
    itemsize = (dtype.value.bits * dtype.value.lanes + 7) // 8
    if itemsize == 1:
        return extents
    return relax.ShapeExpr([*extents.values, itemsize]) if isinstance(extents, relax.ShapeExpr) else None

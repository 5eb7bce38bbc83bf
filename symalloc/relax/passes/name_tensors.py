"""NameTensors: storages and tensors carry their names into the program, for what a pool says of them.

Machine code knows no names.  Behind this pass a pool that refuses a tensor, runs out of memory, or finds that
something was overrun, calls it as its author does.  Such a program needs the pool's library where it runs.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import Call, Op, StringImm

from symalloc.relax.ir_types import BindingNode, CallNode, Node
from symalloc.relax.passes.storage_rewriter import StorageRewriter, builtin_arguments, rewrite_storages

NAMED_TENSOR = "symalloc.pool.alloc_tensor"
NAMED_STORAGE = relax.ExternFunc("symalloc.pool.alloc_storage")
WITH_MACHINE = Op.get("relax.call_builtin_with_ctx")


@tvm.transform.module_pass(opt_level=0, name="NameTensors")
class NameTensors:
    """Tells the pool `function.variable` of each tensor of `R.memory.alloc_tensor` and `R.vm.alloc_tensor`,
    and of each storage besides whether its tensors may outlive the call.

    Stands anywhere in front of VMShapeLower.  What later passes allocate has no name; nor have the storages
    of a pure function in front of RemovePurityChecking.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its tensors named; nothing else changes."""
        return rewrite_storages(module, _Namer)


class _Namer(StorageRewriter):
    """Names what one function allocates."""

    def storage(self, binding: BindingNode, call: CallNode) -> list[Node]:
        # a call that brings the machine counts as impure
        if not self.late:
            return [binding]
        var = binding.var
        told = [StringImm(self.tag(binding)), relax.prim_value(int(self.escapes(binding)))]
        arguments = [*builtin_arguments(call), *told]
        named = Call(WITH_MACHINE, [NAMED_STORAGE, relax.Tuple(arguments)], ty_args=[var.ty])
        return [relax.VarBinding(var, named)]

    def tensor(self, binding: BindingNode, call: CallNode) -> list[Node]:
        var = binding.var
        args = [*call.args[:4], StringImm(self.tag(binding))]
        if self.late:
            named = Call(relax.ExternFunc(NAMED_TENSOR), args, ty_args=[call.ty])
        else:
            # RemovePurityChecking lowers it
            named = relax.op.call_pure_packed(NAMED_TENSOR, *args, ty_args=[call.ty])
        return [relax.VarBinding(var, named)]

"""NameTensors: tensors on storages carry their names into the program, for what a pool says of them.

Machine code knows no names.  Behind this pass a pool that refuses a tensor, or finds that it was overrun,
calls it as its author does; it is the only pool that such a program runs on.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, Op, StringImm

from symalloc.relax.extract.arrays import elements

__all__ = ["NameTensors"]

NAMED = "symalloc.pool.alloc_tensor"
PLACED = tuple(Op.get(f"relax.{room}.alloc_tensor") for room in ("memory", "vm"))


@tvm.transform.module_pass(opt_level=0, name="NameTensors")
class NameTensors:
    """Has `R.memory.alloc_tensor` and `R.vm.alloc_tensor` done by the pool, which is told
    `function.variable`.

    Stands anywhere in front of VMShapeLower.  What later passes allocate has no name.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its tensors named; nothing else changes."""
        named = module.clone()
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                named.update_func(variable, _Namer(variable.name_hint, function).function())
        return named


class _Namer:
    """Names the tensors of one function."""

    def __init__(self, name: str, function: relax.Function) -> None:
        self.name, self.given = name, function
        self.builder = relax.BlockBuilder()
        # call_pure_packed is lowered by RemovePurityChecking, which sets this attribute
        self.late = bool(function.attrs and function.attrs.get("relax.force_pure", False))

    def function(self) -> relax.Function:
        """The function, with its tensors named."""
        old = self.given
        body = self._sequence(old.body)
        return relax.Function(old.params, body, old.ret_ty, old.is_pure, old.attrs, old.span)

    def _sequence(self, seq: Any) -> Any:
        if not isinstance(seq, relax.SeqExpr):
            return seq
        blocks = [type(b)([self._binding(x) for x in elements(b.bindings)]) for b in seq.blocks]
        return self.builder.normalize(relax.SeqExpr(blocks, seq.body))

    def _binding(self, binding: Any) -> Any:
        if not isinstance(binding, relax.VarBinding):
            return binding
        value = binding.value
        if isinstance(value, relax.If):
            sides = (self._sequence(value.true_branch), self._sequence(value.false_branch))
            return relax.VarBinding(binding.var, relax.If(value.cond, *sides, value.span))
        if isinstance(value, Call) and value.op in PLACED:
            return relax.VarBinding(binding.var, self._named(value, binding.var.name))
        return binding

    def _named(self, call: Any, variable: str) -> Any:
        args = [*call.args[:4], StringImm(f"{self.name}.{variable}")]
        if self.late:
            return Call(relax.ExternFunc(NAMED), args, ty_args=[call.ty])
        return relax.op.call_pure_packed(NAMED, *args, ty_args=[call.ty])

"""KeepConditions: hands what an If depends on through a call that CUDA graphs leave out.

TVM 0.27's RewriteCUDAGraph takes no notice of the condition of an If: what computes it is captured, and the
condition itself is left undefined.  It captures no packed function called vm.builtin, and knows what such a
call uses.  Stands in front of RewriteCUDAGraph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import Call

from symalloc.relax.ir_types import BindingNode
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_body

_COPY = "vm.builtin.copy"  # gives what it is given, copied or not


@tvm.transform.module_pass(opt_level=0, name="KeepConditions")
class KeepConditions:
    """Lets each If depend on a variable that is bound outside of every region that can be captured."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with one call more for each If."""
        return map_functions(module, lambda _, function: _kept(function))


def _kept(function: relax.Function) -> relax.Function | None:
    if not isinstance(function.body, relax.SeqExpr):
        return None
    writer = _ConditionKeeper()
    written = with_body(function, writer.sequence(function.body))
    return written if writer.found else None


@dataclass(slots=True, kw_only=True)
class _ConditionKeeper(BindingRewriter):
    """`found`: the function branches."""

    found: bool = False

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value = binding.value
        if type(value) is not relax.If:
            return [binding]
        self.found = True
        copy = Call(relax.ExternFunc(_COPY), [value.cond], ty_args=[value.cond.ty])
        condition = self.bind("condition", copy)
        sides = (self.branch(value.true_branch), self.branch(value.false_branch))
        chosen = self.builder.normalize(relax.If(condition.var, *sides, value.span))
        return [condition, relax.VarBinding(binding.var, chosen)]

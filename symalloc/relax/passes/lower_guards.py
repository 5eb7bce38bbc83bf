"""LowerGuards: the check at a function's entry as a kernel, which calls into Python only where it fails.

`relax.run.assert_op` is a Python function: calling it to hear that all is well costs more than the kernel
does, condition and all.  Stands in front of ComputePrimValue and behind the last DeadCodeElimination, which
takes a kernel without effects for dead code.

That function formats the values of the symbols, and only Python brings it.  Nothing tells whether it is there
but TVM's compiler, which comes with it.  Elsewhere the kernel asserts the same without the values.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.ir import Call, StringImm, TupleType

from symalloc.relax.emit.guard_calls import ASSERT
from symalloc.relax.ir_types import Node, elements
from symalloc.relax.rewrite import free_name, with_body


@tvm.transform.module_pass(opt_level=0, name="LowerGuards")
class LowerGuards:
    """Replaces the assertion that a function begins with by a kernel that asserts the same."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its guards in kernels; nothing else changes."""
        guarded = [(v, f, guard) for v, f in module.functions_items() if (guard := _guard(f)) is not None]
        if not guarded:
            return module
        lowered = module.clone()
        for variable, function, guard in guarded:
            kernel, symbols = _kernel(guard)
            taken = {v.name_hint for v in lowered.get_global_vars()}
            name = free_name(f"{variable.name_hint}_check", taken)
            check = relax.BlockBuilder().add_func(kernel, name)
            lowered.update_func(check, kernel)
            call = Call(check, symbols, ret_ty=TupleType([]))
            lowered.update_func(variable, _with_first(function, call))
        return lowered


def _guard(function: Node) -> Node | None:
    """The assertion over integers that is the first thing the function does; None where there is none."""
    if not isinstance(function, relax.Function) or not isinstance(function.body, relax.SeqExpr):
        return None
    blocks = function.body.blocks
    if not blocks or not blocks[0].bindings:
        return None
    call = blocks[0].bindings[0].value
    if not isinstance(call, Call) or not isinstance(call.op, relax.ExternFunc):
        return None
    if call.op.global_symbol != ASSERT or _is_tensor(call.args[0]):
        return None
    return call if all(_is_integer(value) or _is_tensor(value) for value in call.args[2:]) else None


def _is_integer(value: Node) -> bool:
    return isinstance(value.ty, tvm.ir.PrimType)


def _is_tensor(value: Node) -> bool:
    """Return whether `value` is a tensor, such as the one that keeps a check out of CUDA graphs."""
    return isinstance(value, relax.Var) and isinstance(value.ty, relax.TensorType)


def _kernel(guard: Node) -> tuple[tirx.PrimFunc, list[Node]]:
    """The kernel for an assertion, and the symbols that it is called with."""
    condition, message, *given = guard.args
    values = [value for value in given if _is_integer(value)]
    symbols: list[Node] = []
    for expression in (condition, *values):
        free = tirx.analysis.undefined_vars(expression)
        symbols += [v for v in free if not any(v.same_as(s) for s in symbols)]
    fails = tirx.Evaluate(tirx.call_packed(ASSERT, tirx.IntImm("bool", 0), message, *values))
    body = tirx.IfThenElse(tirx.Not(condition), fails, None)
    if not _compiles_to_c():
        formats = tirx.call_packed("runtime.RuntimeEnabled", StringImm("llvm")) != 0
        with_values = tirx.IfThenElse(tirx.Not(condition), tirx.IfThenElse(formats, fails, None), None)
        bare = StringImm(str(message.value).replace(" = {}", "").replace("{}", "a limit of these shapes"))
        body = tirx.SeqStmt([with_values, tirx.AssertStmt(condition, StringImm("AssertionError"), [bare])])
    return tirx.PrimFunc(symbols, body).with_attr("tirx.is_host_func", True), symbols


def _compiles_to_c() -> bool:
    """Return whether the host's code is C: TVM writes nothing for the value of a packed function there."""
    target = tvm.target.Target.current(allow_none=True)
    return target is not None and (target.host or target).kind.name == "c"


def _with_first(function: relax.Function, value: Node) -> relax.Function:
    """`function` with another value in its first binding."""
    first, *blocks = function.body.blocks
    old, *bindings = elements(first.bindings)
    kind = type(first)
    renewed = kind([relax.VarBinding(old.var, value), *bindings])
    body = relax.SeqExpr([renewed, *blocks], function.body.body)
    return with_body(function, body)

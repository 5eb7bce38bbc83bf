"""Writes the bodies of callees into their callers, so that what a call needs is planned tensor by tensor.

A call that stays one holds its callee's whole arena, and its results beside it, for as long as it lasts: up
to twice the floor.  TVM's InlinePrivateFunctions does not bind the callee's symbolic variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

import tvm
import tvm_ffi
from tvm import ir, relax

from symalloc.planner.check.validate import PlanRefusedError
from symalloc.program.control_flow import callees_first, recursive
from symalloc.relax.ir_types import (
    BindingNode,
    CallNode,
    Node,
    bindings_in,
    elements,
    may_divide_by_zero,
    relax_functions,
)
from symalloc.relax.rewrite import BindingRewriter, ModuleDraft, copied, referenced, with_functions

MOST_BINDINGS = 4000
"""How many bindings inlining may add to a module: a call that would add more stays a call."""

# attributes that say nothing about how the function is compiled or called
_BOUNDS = ("tir_non_negative_var", "tir_var_lower_bound", "tir_var_upper_bound")
_HARMLESS = frozenset({"global_symbol", "relax.force_pure", *_BOUNDS})


def apart_from_callers(module: tvm.IRModule) -> tvm.IRModule:
    """`module` whose public functions are called from outside only: within it private copies are called.

    Raises PlanRefusedError for a function that TVM cannot copy.
    """
    functions = relax_functions(module)
    called = [n for n in sorted(referenced(functions.values())) if n in functions]
    draft, inner = ModuleDraft(module), dict[str, ir.GlobalVar]()
    for name in called:
        if "global_symbol" in (functions[name].attrs or {}):
            copy = copied(functions[name])
            if copy is None:
                why = "TVM cannot copy it: a type in it holds a call (if_then_else)"
                raise PlanRefusedError(f"`{name}` is called within the module, and {why}")
            inner[name] = draft.add(f"{name}_inner", copy)
    if not inner:
        return module
    draft.functions.update((v, f) for v, f in module.functions_items() if isinstance(f, relax.Function))
    swap = (ir.GlobalVar, lambda var: inner.get(var.name_hint, var))
    return with_functions(module, {v: tvm_ffi.structural_map(f, swap) for v, f in draft.functions.items()})


def inline_calls(module: tvm.IRModule, *, all_of_them: bool = False) -> tvm.IRModule:
    """`module`, without dataflow blocks, with calls of its Relax functions replaced by what they do.

    What stays a call: recursion; a callee that the budget is too small for or that has attributes of other
    passes; arguments whose types are not exactly what the callee wants; within an If a callee that divides by
    what may be 0, for TVM evaluates every shape of a function at its entry.  Private functions that nothing
    refers to any more are left out.
    """
    functions = relax_functions(module)
    if len(functions) == 1:
        return module  # which is nobody's but its own callee
    called = {name: {*referenced([function])} & functions.keys() for name, function in functions.items()}
    inliner = _Inliner(
        functions=functions, kept=recursive(called), left=inf if all_of_them else MOST_BINDINGS
    )
    draft = ModuleDraft(module)
    for name in callees_first(called):
        written = inliner.rewritten(functions[name]) if called[name] else None
        if written is not None:
            functions[name] = draft.functions[module.get_global_var(name)] = written
    return draft.without_unused()


@dataclass(slots=True, kw_only=True)
class _Inliner(BindingRewriter):
    """`kept` names functions whose calls stay; `functions` holds those done already in their new form;
    `left` is what remains of the budget, in bindings; `depth` counts the Ifs around a binding.
    """

    functions: Mapping[str, relax.Function]
    kept: frozenset[str]
    left: float
    depth: int = 0

    def branch(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        self.depth += 1
        written = BindingRewriter.branch(self, seq)
        self.depth -= 1
        return written

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        inlined = self.inlined(binding.value) if isinstance(binding, relax.VarBinding) else None
        if inlined is None:
            return BindingRewriter.rewrite(self, binding)
        inside = [b for block in elements(inlined.blocks) for b in elements(block.bindings)]
        return [*inside, relax.VarBinding(binding.var, inlined.body, binding.span)]

    def inlined(self, call: CallNode) -> relax.SeqExpr | None:
        """The body of a call's callee, its arguments put in; None where it stays a call."""
        callee = self.callee(call)
        if callee is None:
            return None
        symbols: dict[int, Node] = {}
        if not all(_fits(p.ty, a.ty, symbols) for p, a in zip(callee.params, call.args, strict=True)):
            return None
        copy = None if self.depth and may_divide_by_zero(callee) else copied(callee)
        if copy is None:
            return None
        self.left -= self.size(call.op.name_hint)
        return copy.bind_params(dict(zip(copy.params, call.args, strict=True))).body

    def callee(self, call: CallNode) -> relax.Function | None:
        """The function that may be written in the place of `call`."""
        if type(call) is not ir.Call or type(call.op) is not ir.GlobalVar:
            return None
        name = call.op.name_hint
        function = self.functions.get(name)
        if function is None or name in self.kept or len(function.params) != len(call.args):
            return None
        if not _HARMLESS.issuperset((function.attrs or {}).keys()) or self.size(name) > self.left:
            return None
        return function

    def size(self, name: str) -> int:
        """The number of bindings in a function."""
        return sum(1 for _ in bindings_in(self.functions[name].body))


def _fits(declared: Node, given: Node, symbols: dict[int, Node]) -> bool:
    """Return whether an argument of type `given` passes the check of a parameter for sure.

    `symbols` holds the values of the callee's symbolic variables, by their addresses; those of this parameter
    are added.
    """
    if type(declared) is not type(given):
        return False
    if isinstance(declared, ir.TupleType):
        pairs = zip(declared.fields, given.fields, strict=False)
        return len(declared.fields) == len(given.fields) and all(_fits(a, b, symbols) for a, b in pairs)
    if isinstance(declared, relax.ShapeType):
        return _extents_fit(declared.values, given.values, symbols)
    if not isinstance(declared, relax.TensorType):
        return bool(tvm_ffi.structural_equal(declared, given))
    same = tvm_ffi.structural_equal([declared.dtype, declared.vdevice], [given.dtype, given.vdevice])
    known = isinstance(declared.shape, relax.ShapeExpr) and isinstance(given.shape, relax.ShapeExpr)
    return bool(same) and known and _extents_fit(declared.shape.values, given.shape.values, symbols)


def _extents_fit(declared: Node, given: Node, symbols: dict[int, Node]) -> bool:
    if declared is None or given is None or len(declared) != len(given):
        return False
    wanted = (
        symbols.setdefault(one.__chandle__(), other) if isinstance(one, ir.Var) else one
        for one, other in zip(declared, given, strict=True)
    )
    return all(tvm_ffi.structural_equal(one, other) for one, other in zip(wanted, given, strict=True))

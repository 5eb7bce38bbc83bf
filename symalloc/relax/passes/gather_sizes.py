"""GatherSizes: computes the sizes that calls take as arguments at entry, by the kernel of the extents.

ComputePrimValue makes a PrimFunc of each such size, which is two functions of machine code for every offset
of a plan.  VMShapeLower computes all extents that are known at one point by one kernel.  So the sizes become
a shape there, whose extents are bound to variables.  Stands in front of ComputePrimValue, which keeps what is
not known at entry, or may divide by zero on a path that is not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.ir import Call, PrimType
from tvm.relax.analysis import definable_tir_vars_in_type, post_order_visit
from tvm_ffi import StructuralKey

from symalloc.relax.ir_types import BindingNode, Node, PrimNode, VarNode, elements
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_body

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)


@tvm.transform.module_pass(opt_level=0, name="GatherSizes")
class GatherSizes:
    """Binds the sizes that a function computes from its parameters to variables at its entry."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with fewer sizes among the arguments of calls; what it computes is the same."""
        return map_functions(module, lambda _, function: _gathered(function))


def _gathered(function: relax.Function) -> relax.Function | None:
    if not isinstance(function.body, relax.SeqExpr):
        return None
    entry = {v.__chandle__() for p in function.params for v in definable_tir_vars_in_type(p.ty)}
    sizes: dict[StructuralKey, VarNode] = {}
    for size in _sizes(function.body):
        if _symbols(size) <= entry and not _may_divide_by_zero(size):
            sizes.setdefault(StructuralKey(size), tirx.Var(f"size{len(sizes)}", "int64"))
    if not sizes:
        return None
    kind = relax.ShapeType(ndim=len(sizes))
    shape, cast = relax.Var("shape", kind), relax.Var("sizes", kind)
    given = relax.ShapeExpr([key.key for key in sizes])
    entry_bindings = [
        relax.VarBinding(shape, given),
        relax.MatchCast(cast, shape, relax.ShapeType([*sizes.values()])),
    ]
    return with_body(function, _SizeReader(sizes=sizes).sequence(function.body, entry_bindings))


def _sizes(seq: relax.SeqExpr) -> Iterable[PrimNode]:
    """Yield the sizes that are arguments, or bound to variables, in a sequence and in the branches within."""
    for block in elements(seq.blocks):
        for binding in elements(block.bindings):
            value: Node = binding.value
            if type(value) is relax.If:
                yield from _sizes(value.true_branch)
                yield from _sizes(value.false_branch)
            elif type(value) is Call:
                yield from filter(_is_computed, elements(value.args))
            elif _is_computed(value):
                yield value


def _is_computed(value: Node) -> bool:
    """Return whether a value is an integer that takes arithmetic."""
    if isinstance(value, tvm.ir.Var | tirx.IntImm | relax.TupleGetItem) or not isinstance(value.ty, PrimType):
        return False
    return str(value.ty.dtype) == "int64"


def _symbols(size: PrimNode) -> set[int]:
    return {variable.__chandle__() for variable in tirx.analysis.undefined_vars(size)}


def _may_divide_by_zero(size: PrimNode) -> bool:
    found: list[bool] = []

    def visit(node: Node) -> None:
        if isinstance(node, _DIVISIONS):
            found.append(not isinstance(node.b, tirx.IntImm))

    post_order_visit(size, visit)
    return any(found)


@dataclass(slots=True, kw_only=True)
class _SizeReader(BindingRewriter):
    """Puts variables in the place of `sizes`."""

    sizes: dict[StructuralKey, VarNode]

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value = binding.value
        if type(value) is relax.If:
            return [self.branches(binding)]
        if type(value) is Call:
            arguments: Sequence[Node] = elements(value.args)
            read = [self.size(one) for one in arguments]
            if all(new is old for new, old in zip(read, arguments, strict=True)):
                return [binding]
            value = Call(value.op, read, value.attrs, value.ty_args, value.span, ret_ty=value.ty)
            return [relax.VarBinding(binding.var, value)]
        size = self.size(value)
        return [binding] if size is value else [relax.VarBinding(binding.var, size)]

    def size(self, value: Node) -> Node:
        """The variable of a size, or the value itself."""
        return self.sizes.get(StructuralKey(value), value) if _is_computed(value) else value

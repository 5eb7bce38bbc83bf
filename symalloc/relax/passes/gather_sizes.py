"""GatherSizes: computes the sizes that calls take as arguments at entry, by the kernel of the extents.

ComputePrimValue makes a PrimFunc of each such size, which is two functions of machine code for every offset
of a plan.  VMShapeLower computes all extents that are known at one point by one kernel.  So the sizes become
a shape there, whose extents are bound to variables.  Stands in front of ComputePrimValue, which keeps what is
not known at entry, or may divide by zero on a path that is not taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx
from tvm.ir import Call, PrimType
from tvm.relax.analysis import definable_tir_vars_in_type, post_order_visit
from tvm_ffi import StructuralKey

from symalloc.relax.ir_types import BindingNode, Node, PrimNode, VarNode, bound, elements, of_type, typed_call
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_body

_GIVEN = frozenset(
    {tvm.ir.Var, tvm.ir.GlobalVar, tirx.IntImm, relax.Tuple, relax.TupleGetItem, relax.ShapeExpr}
)
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
    if not entry:
        return None
    reader = _SizeReader(known=entry)
    body = reader.sequence(function.body)
    if not reader.sizes:
        return None
    kind = relax.ShapeType(ndim=len(reader.sizes))
    shape, cast = relax.Var("shape", kind), relax.Var("sizes", kind)
    given = relax.ShapeExpr([key.key for key in reader.sizes])
    bindings = [
        relax.VarBinding(shape, given),
        relax.MatchCast(cast, shape, relax.ShapeType([*reader.sizes.values()])),
    ]
    whole = relax.SeqExpr([relax.BindingBlock(bindings), *elements(body.blocks)], body.body, body.span)
    return with_body(function, of_type(whole, body.ty))


def _is_computed(value: Node) -> bool:
    """Return whether a value is an integer that takes arithmetic."""
    if type(value) in _GIVEN or type(value.ty) is not PrimType:
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
    """Puts variables in the place of sizes in symbols that are `known` at entry; `sizes` are those so far."""

    known: set[int]
    sizes: dict[StructuralKey, VarNode] = field(default_factory=dict)

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value = binding.value
        if type(value) is relax.If:
            return [self.branches(binding)]
        if type(value) is Call:
            arguments = elements(value.args)
            if not any(map(_is_computed, arguments)):
                return [binding]
            read = list(map(self.size, arguments))
            call = typed_call(value.op, read, value.ty, value.ty_args, value.span, value.attrs)
            return [bound(binding.var, call)]
        size = self.size(value)
        return [binding] if size is value else [relax.VarBinding(binding.var, size)]

    def size(self, value: Node) -> Node:
        """The variable of a size, or the value itself."""
        if not _is_computed(value):
            return value
        key = StructuralKey(value)
        if key not in self.sizes:
            if not _symbols(value) <= self.known or _may_divide_by_zero(value):
                return value
            self.sizes[key] = tirx.Var(f"size{len(self.sizes)}", "int64")
        return self.sizes[key]

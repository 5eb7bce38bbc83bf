"""Sizes and guards of planned functions as kernels: passes in front of ComputePrimValue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import is_

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar, PrimType, StringImm, TupleType
from tvm.relax.analysis import definable_tir_vars_in_type
from tvm.target import Target
from tvm_ffi import StructuralKey

from symalloc.relax.extract.kernel_walk import ASSERT
from symalloc.relax.extract.tir_to_expr import TirToExpr
from symalloc.relax.ir_types import (
    NOTHING,
    BindingNode,
    Node,
    VarNode,
    bound,
    elements,
    may_divide_by_zero,
    of_type,
    typed_call,
    typed_var,
    with_arguments,
)
from symalloc.relax.rewrite import (
    BindingRewriter,
    ModuleDraft,
    map_bindings,
    map_functions,
    with_body,
    with_functions,
)
from symalloc.size.expr import symbol

_GIVEN = frozenset({GenericConst, relax.ExternFunc, relax.TupleGetItem, StringImm, tirx.IntImm, GlobalVar})
_NAMED = frozenset({relax.AnyType, relax.TensorType, TupleType})  # no type mentions a variable of these
_INTEGER = PrimType("int64")


@tvm.transform.module_pass(opt_level=0, name="GatherSizes")
class GatherSizes:
    """Binds the sizes that a function computes from its parameters to variables at its entry, and each other
    size, shape and scalar where it is first wanted on a path; no tensor has two names behind it.

    ComputePrimValue, in front of which it stands, makes a PrimFunc of each size that is an argument: two
    functions of machine code for every offset of a plan.  VMShapeLower computes all extents that are known at
    one point by one kernel.  So the sizes become a shape at entry, whose extents are bound to variables.
    What is not known there, or may divide by zero on a path that is not taken, is left to ComputePrimValue.

    VMShapeLower makes a call of each shape and scalar that is an argument, and each name has a register, into
    which TVM's machine copies what it stands for.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with fewer sizes among the arguments of calls; what it computes is the same."""
        return map_functions(module, lambda _, function: _gathered(function))


def _gathered(function: relax.Function) -> relax.Function | None:
    entry = {v.__chandle__() for p in elements(function.params) for v in definable_tir_vars_in_type(p.ty)}
    reader = _SizeReader(known=entry)
    given_body = function.body
    body = reader.sequence(given_body)
    if not reader.sizes:
        return None if body is given_body else with_body(function, body)
    kind = relax.ShapeType(ndim=len(reader.sizes))
    shape, cast = relax.Var("shape", kind), relax.Var("sizes", kind)
    given = relax.ShapeExpr([key.key for key in reader.sizes])
    symbols = [tirx.Var(f"size{i}", "int64") for i in range(len(reader.sizes))]
    bindings = [
        relax.VarBinding(shape, given),
        relax.MatchCast(cast, shape, relax.ShapeType(symbols)),
        *map(bound, reader.sizes.values(), symbols),
    ]
    whole = relax.SeqExpr([relax.BindingBlock(bindings), *elements(body.blocks)], body.body, body.span)
    return with_body(function, of_type(whole, body.ty))


@dataclass(slots=True, kw_only=True)
class _SizeReader(BindingRewriter):
    """Puts variables in the place of sizes, shapes and scalars.

    `sizes` are those so far in symbols that are `known` at entry, `made` all values that were made so far on
    this path.  `instead` tells by its address what stands for a value wherever it is used, and `kept` are
    those for which nothing does; `due` are the bindings that belong in front of the one in hand.
    """

    known: set[int]
    sizes: dict[StructuralKey, VarNode] = field(default_factory=dict)
    made: dict[object, VarNode] = field(default_factory=dict)
    instead: dict[int, Node] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    due: list[BindingNode] = field(default_factory=list)

    def branch(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        """One side of an If: what is made there is not known behind it."""
        outside, due = self.made, self.due
        self.made, self.due = dict(outside), []
        written = self.sequence(seq)
        self.made, self.due = outside, due
        return written

    def value(self, value: Node) -> Node:
        """The value by the names that are left."""
        if type(value) is relax.Tuple:
            return self.fields(value, self.value)
        return self.instead.get(value.__chandle__(), value)

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value = binding.value
        kind = type(value)
        if kind is Call:
            arguments = elements(value.args)
            read = list(map(self.argument, arguments))
            if all(map(is_, read, arguments)):
                return [binding]
            return self.behind_due(bound(binding.var, with_arguments(value, read)))
        if kind is relax.If:
            return self.behind_due(self.branches(binding))
        if isinstance(binding, relax.MatchCast):
            named = self.value(value)
            return [binding if named is value else relax.MatchCast(binding.var, named, binding.ty)]
        if kind is tvm.ir.Var and type(value.ty) in _NAMED:
            self.instead[binding.var.__chandle__()] = self.value(value)
            return []
        if kind is relax.ShapeExpr:
            self.made.setdefault(self.extents(value), binding.var)
            return [binding]
        renewed = self.renewed(value)
        return [binding] if renewed is value else self.behind_due(relax.VarBinding(binding.var, renewed))

    def renewed(self, value: Node) -> Node:
        """A value that is no call, by the names that are left."""
        if isinstance(value, relax.TupleGetItem):
            whole = self.value(value.tuple_value)
            return value if whole is value.tuple_value else relax.TupleGetItem(whole, value.index)
        if type(value) is relax.Tuple:
            return self.argument(value)
        size = self.at_entry(value)
        return value if size is None else size

    def behind_due(self, binding: BindingNode) -> list[relax.Binding]:
        """A binding behind those that it needs."""
        written, self.due = [*self.due, binding], []
        return written

    def argument(self, value: Node) -> Node:
        """The variable of a size, a shape or a scalar, or the value itself."""
        kind = type(value)
        if kind in _GIVEN:
            return value
        address = value.__chandle__()
        if address in self.kept:
            return value
        if address in self.instead:
            return self.instead[address]
        if kind is relax.ShapeExpr:
            return self.shape(value)
        if kind is relax.Tuple:
            return self.fields(value, self.argument)
        if type(value.ty) is not PrimType:
            if kind is tvm.ir.Var:
                self.kept.add(address)
            return value
        if kind is tvm.ir.Var:
            return self.first(address, "size", value)
        size = self.at_entry(value)
        return self.first(StructuralKey(value), "size", value) if size is None else size

    def fields(self, value: Node, read: Callable[[Node], Node]) -> Node:
        """A tuple of what stands for its fields."""
        given = elements(value.fields)
        renewed = list(map(read, given))
        return value if all(map(is_, renewed, given)) else relax.Tuple(renewed)

    def at_entry(self, value: Node) -> VarNode | None:
        """The variable of a size that takes arithmetic which can be done at entry; None for anything else."""
        if type(value) in _GIVEN or type(value) is tvm.ir.Var or not _is_size(value):
            return None
        key = StructuralKey(value)
        if key not in self.sizes:
            symbols = {variable.__chandle__() for variable in tirx.analysis.undefined_vars(value)}
            if not symbols <= self.known or may_divide_by_zero(value):
                return None
            self.sizes[key] = typed_var("size", _INTEGER)
        self.instead[value.__chandle__()] = self.sizes[key]
        return self.sizes[key]

    def shape(self, value: Node) -> Node:
        """The variable of a shape; one that is known here and now is a constant."""
        extents = self.extents(value)
        if all(type(one) is int for one in extents):
            self.kept.add(value.__chandle__())
            return value
        return self.first(extents, "shape", value)

    def extents(self, shape: Node) -> tuple[object, ...]:
        """The extents that tell a shape from others."""
        return tuple(map(_extent, elements(shape.values)))

    def first(self, key: object, name: str, value: Node) -> VarNode:
        """The variable that `value` was bound to on this path, or is bound to now."""
        if key not in self.made:
            self.made[key] = typed_var(name, value.ty)
            self.due.append(bound(self.made[key], value))
        return self.made[key]


def _extent(extent: Node) -> object:
    if type(extent) is tirx.IntImm:
        return int(extent.value)
    return (extent.__chandle__(),) if type(extent) is tvm.ir.Var else StructuralKey(extent)


@tvm.transform.module_pass(opt_level=0, name="LowerGuards")
class LowerGuards:
    """Compiles the assertions about sizes of functions that nothing has planned: see `lower_guards`."""

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its assertions in kernels; nothing else changes."""
        return lower_guards(module, Target.current(allow_none=True))


def lower_guards(module: tvm.IRModule, target: Target | None) -> tvm.IRModule:
    """`module` with kernels in the place of assertions about sizes; they assert the same, and call into
    Python where one fails.

    `relax.run.assert_op` is a Python function: calling it to hear that all is well costs more than the kernel
    does, condition and all, and no C++ program has it.  Kernels are called by their symbols: a direct call of
    one without effects is dead code for TVM.

    That function formats the values of the symbols.  Nothing tells whether it is there but TVM's compiler,
    which comes with it.  Elsewhere the kernel asserts the same without the values.
    """
    draft = ModuleDraft(module)

    def lowered(function: str, binding: BindingNode) -> list[relax.Binding] | None:
        found = _check_in(binding.value, target)
        if found is None:
            return None
        kernel, given = found
        check = relax.ExternFunc(draft.add(f"{function}_check", kernel, public=True).name_hint)
        return [bound(binding.var, typed_call(check, given, NOTHING, [NOTHING]))]

    return with_functions(map_bindings(module, lowered), draft.functions)


def _check_in(value: Node, target: Target | None) -> tuple[tirx.PrimFunc, list[Node]] | None:
    """The kernel for the assertion that `value` is, and what it is called with: its symbols, and tensors that
    it does not look at, which keep it out of CUDA graphs; None where it is none, or shows other things than
    sizes.
    """
    if type(value) is not Call or type(value.op) is not relax.ExternFunc or value.op.global_symbol != ASSERT:
        return None
    condition, template, *given = elements(value.args)
    texts, tensors, values = list[Node](), list[Node](), list[Node]()
    for one in given:
        is_tensor = isinstance(one, relax.Var) and isinstance(one.ty, relax.TensorType)
        (texts if isinstance(one, StringImm) else tensors if is_tensor else values).append(one)
    if isinstance(condition.ty, relax.TensorType) or (tensors and not texts):
        return None  # the model's author may show tensors; ours keeps the check out of CUDA graphs by one
    symbols: list[Node] = []
    for expression in (condition, *values):
        free = tirx.analysis.undefined_vars(expression) if isinstance(expression.ty, PrimType) else ()
        symbols += [v for v in free if not any(v.same_as(s) for s in symbols)]
    sizes = all(isinstance(one.ty, PrimType) for one in values) and all(map(_is_size, symbols))
    if not sizes:
        return None
    unread = [tirx.Var(f"beside{index}", "handle") for index in range(len(tensors))]
    body = _asserted(condition, template, values, next(iter(texts), None), target)
    kernel = tirx.PrimFunc([*symbols, *unread], body).with_attr("tirx.is_host_func", True)
    return kernel, [*symbols, *tensors]


def _is_size(value: Node) -> bool:
    return type(value.ty) is PrimType and str(value.ty.dtype) == "int64"


def _asserted(
    condition: Node, template: Node, values: Sequence[Node], fixed: Node | None, target: Target | None
) -> Node:
    """An assertion in a kernel: `template` is a format of the `values`, `fixed` says it without; a native
    one says the same by both.
    """
    asserted = tirx.call_packed(ASSERT, tirx.IntImm("bool", 0), template, *values)
    fails, wrong = tirx.Evaluate(asserted), tirx.Not(condition)
    if fixed is not None and fixed.value == template.value:
        return tirx.AssertStmt(condition, StringImm("ValueError"), [fixed])
    if target is not None and (target.host or target).kind.name == "c":
        return tirx.IfThenElse(wrong, fails, None)  # TVM writes no value of a packed function there
    formats = tirx.call_packed("runtime.RuntimeEnabled", StringImm("llvm")) != 0
    with_values = tirx.IfThenElse(wrong, tirx.IfThenElse(formats, fails, None), None)
    said = StringImm(_named(str(template.value), values)) if fixed is None else fixed
    return tirx.SeqStmt([with_values, tirx.AssertStmt(condition, StringImm("AssertionError"), [said])])


def _named(template: str, values: Sequence[Node]) -> str:
    """The text of an assertion of the model's author, with the values' expressions for the values."""
    form = TirToExpr(lambda variable: symbol(variable.name))
    shown = [str(value if (known := form.expr_or_none(value)) is None else known) for value in values]
    try:
        said = template.format(*shown)
    except (IndexError, KeyError, ValueError):  # a format of numbers, or none
        said = template
    return said or ", ".join(shown) or "Assertion Failed"

"""One Relax function: its blocks and bindings in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import tvm
import tvm_ffi
from tvm import relax, tirx

from symalloc.program import ir
from symalloc.program.operands import type_of
from symalloc.program.record import by_position
from symalloc.program.source_map import NO_SPANS, SourceMap
from symalloc.program.span import Span
from symalloc.program.types import StorageType, TupleType, filled_in, is_open
from symalloc.relax.extract.calls import translate_call
from symalloc.relax.extract.context import Context, Head, ModuleFacts
from symalloc.relax.extract.heap_builtins import MAKE_PRIM_VALUE, made_number
from symalloc.relax.extract.shape_heap import slot_fault
from symalloc.relax.extract.tir_to_expr import NotASizeError, truth_value
from symalloc.relax.ir_types import BindingNode, Node, VarNode, elements, span_given
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr

_made_alias = by_position(ir.Alias)


def extract_function(
    name: str, function: Node, module: ModuleFacts, source_map: SourceMap = NO_SPANS
) -> ir.Function:
    """The function in our form; what is not understood becomes an instruction that says so."""
    return FunctionExtractor(module, source_map).run(name, function)


class FunctionExtractor(Context):
    """Walks one function.  Invariant: a variable is declared before anything that uses it is translated."""

    def run(self, name: str, function: Node) -> ir.Function:
        """The whole function."""
        self.heaps.body = function.body
        params = self.declare_parameters(function.params)
        signature = dict(self.symbols.original)
        body = self._whole(function.body)
        attributes: Mapping[str, Node] = function.attrs or {}
        return ir.Function(
            name=name,
            params=params,
            body=body,
            result_type=self.types.of(function.ret_ty),
            symbols=self.symbols.origins,
            private="global_symbol" not in attributes,
            declared_upper=_declared(attributes, "tir_var_upper_bound", signature),
            declared_lower=_declared_lower(attributes, signature),
            span=self.source_map.definition,
            result_span=self.source_map.result,
        )

    def _whole(self, body: Node) -> ir.Block:
        """The body; variables that nothing binds are said to be so at its start."""
        block = self._block(body)
        said = [
            ir.NotUnderstood(var=var, what=f"the variable `{var.name}`, which nothing defines")
            for var in self.unbound
        ]
        return replace(block, instructions=(*said, *block.instructions)) if said else block

    # -- blocks ---------------------------------------------------------------------------------------------

    def _block(self, body: Node) -> ir.Block:
        outer, self.out = self.out, []
        result = self._sequence(body)
        block = ir.Block(instructions=tuple(self.out), result=result)
        self.out = outer
        return block

    def _sequence(self, body: Node) -> ir.Operand:
        if type(body) is not relax.SeqExpr:
            return self._value_operand(body)
        for block in elements(body.blocks):
            for binding in elements(block.bindings):
                self._binding(binding)
        return self._value_operand(body.body)

    def _value_operand(self, node: Node) -> ir.Operand:
        """The value that a block yields; one that is no operand is bound to a variable of its own."""
        try:
            return self.operand(node)
        except NotASizeError:
            return self._bind_temporary(node)

    def literal(self, node: Node) -> ir.Operand:
        """As Context.literal; calls, tuple fields, branches and sequences are bound first."""
        kind = type(node)
        if kind in _COMPUTED or (kind is tvm.ir.Call and type(node.ty) is not tvm.ir.PrimType):
            return self._bind_temporary(node)
        return super().literal(node)

    def _bind_temporary(self, node: Node) -> ir.Operand:
        """Binds a value that has no variable in the module."""
        head = Head(var=ir.Var("_", self.types.of(node.ty)), span=None, handle=None)
        made = self._translate(head, node)
        self.out.append(made)
        return made.var

    # -- bindings -------------------------------------------------------------------------------------------

    def _binding(self, binding: BindingNode) -> None:
        if type(binding) is relax.MatchCast:
            self._match_cast(binding)
            return
        value, var = binding.value, binding.var
        type_ = var.ty
        span = self._span_of(var, value)
        if type(type_) is tvm.ir.PrimType and self._bind_scalar(binding, span):
            return
        declared = self.declare(var, type_)
        made = self._translate(self._head(declared, span, binding), value)
        self.out.append(made)
        if made.var is not declared:
            self.retype(var, made.var)
        if type(made) is ir.CallOperator and made.name == "relax.null_value":
            self.note_null(var)

    def _span_of(self, var: VarNode, value: Node) -> Span | None:
        if self.source_map is NO_SPANS:
            return None
        if type(value) is relax.If:
            return self.source_map.span_of_if()
        return self.source_map.span_of(str(var.name), span_given(value))

    def _head(self, var: ir.Var, span: Span | None, binding: BindingNode) -> Head:
        return {"var": var, "span": span, "handle": binding if self.handles else None}

    def _match_cast(self, binding: BindingNode) -> None:
        span = self._span_of(binding.var, binding.value)
        source = self._value_operand(binding.value)
        if self.heaps.lowered:
            self._checked_before(binding, span, source)
            return
        defines = self.types.define(binding.ty, ir.Origin.CAST)
        target = self.types.of(binding.ty)
        if isinstance(source, ir.Scalar) and source.value is not None:
            self.symbols.bind(binding.var, source.value)
        head = self._head(self.declare(binding.var), span, binding)
        self.out.append(ir.MatchCast(**head, source=source, target=target, defines=defines))

    def _checked_before(self, binding: BindingNode, span: Span | None, source: ir.Operand) -> None:
        """Behind VMShapeLower a match_cast does nothing: a match_shape in front of it compares."""
        var, known = self.declare(binding.var), type_of(source)
        given = filled_in(known, var.type) if type(known) is type(var.type) else var.type
        head = self._head(ir.Var(var.name, given), span, binding)
        self.retype(binding.var, head["var"])
        self.out.append(ir.Alias(**head, source=source))

    def _bind_scalar(self, binding: BindingNode, span: Span | None) -> bool:
        """A scalar bound to an expression stands for it from here on; False if that has no exact form."""
        var, value = binding.var, binding.value
        try:
            if str(var.ty.dtype) == "bool":
                self.symbols.bind_flag(var, self._flag(value))
                source = ir.Scalar(None)
            else:
                bound = self._number(value)
                self.symbols.bind(var, bound)
                source = ir.Scalar(bound)
        except NotASizeError as reason:
            return self._bind_unknown_slot(binding, span, reason)
        self.out.append(ir.Alias(**self._head(self.declare(var), span, binding), source=source))
        return True

    def _bind_unknown_slot(self, binding: BindingNode, span: Span | None, reason: NotASizeError) -> bool:
        """A scalar out of a slot of which nothing is known is no free symbol; False for any other value."""
        if not _makes_number(binding.value):
            return False
        self.symbols.bind_unknown(binding.var)
        head = self._head(self.declare(binding.var), span, binding)
        fault = slot_fault(reason, MAKE_PRIM_VALUE)
        self.out.append(self.not_understood(head, f"`{MAKE_PRIM_VALUE}` with {reason}", fault=fault))
        return True

    def _number(self, value: Node) -> Expr:
        """A scalar that the program computes; raises NotASizeError."""
        if type(value) is tvm.ir.Call:
            if type(value.op) is tvm.ir.GlobalVar and value.op.name_hint in self.module.kernels:
                return self.host.number(value.op.name_hint, self._numbers(value.args))
            if _makes_number(value):
                return made_number(self, value)
        return self.form.expr(value)

    def _flag(self, value: Node) -> Condition:
        """A condition that the program computes; raises NotASizeError."""
        if type(value) is tvm.ir.Call and type(value.op) is tvm.ir.GlobalVar:
            return self.host.flag(value.op.name_hint, self._numbers(value.args))
        return self.form.condition(value)

    def _numbers(self, nodes: Node) -> list[Expr]:
        return [
            truth_value(self.form.condition(node)) if str(node.ty.dtype) == "bool" else self.form.expr(node)
            for node in nodes
        ]

    # -- values ---------------------------------------------------------------------------------------------

    def _translate(self, head: Head, value: Node) -> ir.Instruction:
        try:
            return _VALUES.get(type(value), FunctionExtractor._alias)(self, head, value)
        except NotASizeError as reason:
            return self.not_understood(head, str(reason), getattr(value, "fields", ()))

    def _alias(self, head: Head, value: Node) -> ir.Instruction:
        source = self.operand(value)
        if isinstance(source, ir.Var) and isinstance(source.type, StorageType):
            head = self.storage_head(head)
        if is_open(head["var"].type):
            head = self.known_head(head, type_of(source))
        return _made_alias(*head.values(), source)

    def _tuple(self, head: Head, value: Node) -> ir.Instruction:
        fields = self.operands(elements(value.fields))
        head = self.known_head(head, TupleType(fields=tuple(map(type_of, fields))))
        return ir.MakeTuple(**head, fields=fields)

    def _field(self, head: Head, value: Node) -> ir.Instruction:
        source, index = self.operand(value.tuple_value), int(value.index)
        kind = type_of(source)
        if isinstance(kind, TupleType) and 0 <= index < len(kind.fields):
            head = self.known_head(head, kind.fields[index])
        return ir.TakeField(**head, source=source, index=index)

    def _local_function(self, head: Head, value: Node) -> ir.Instruction:
        """A closure reads what it captures; one that calls itself does not capture itself."""
        made = self.not_understood(head, "a local function (a closure)", relax.analysis.free_vars(value))
        return replace(made, reads=tuple(read for read in made.reads if read is not made.var))

    def _sequence_value(self, head: Head, value: Node) -> ir.Instruction:
        return ir.Alias(**head, source=self._sequence(value))

    def _if(self, head: Head, value: Node) -> ir.Instruction:
        test, condition = self.operand(value.cond), self.condition(value.cond)
        before = self.heaps.saved()
        with self.source_map.branch(taken=True):
            then = self._block(value.true_branch)
        behind_then = self.heaps.saved()
        self.heaps.restore(before)
        with self.source_map.branch(taken=False):
            otherwise = self._block(value.false_branch)
        self.heaps.join(behind_then)
        yielded = type_of(then.result)
        if yielded == type_of(otherwise.result):
            head = self.known_head(head, yielded)
        return ir.If(**head, condition=condition, test=test, then=then, otherwise=otherwise)


def _makes_number(value: Node) -> bool:
    if type(value) is not tvm.ir.Call or type(value.op) is not relax.ExternFunc:
        return False
    return bool(value.op.global_symbol == MAKE_PRIM_VALUE)


def _declared(attributes: Mapping[str, Node], key: str, signature: Mapping[str, str]) -> dict[str, int]:
    """The bounds that an attribute declares, by our names for the symbols of the signature.

    What is no integer, which TVM's planner refuses, declares nothing.
    """
    bounds = attributes.get(key)
    given = dict(bounds.items()) if isinstance(bounds, tvm_ffi.Map) else {}
    numbers = {str(name): int(value) for name, value in given.items() if isinstance(value, int | tirx.IntImm)}
    return {ours: numbers[theirs] for ours, theirs in signature.items() if theirs in numbers}


def _declared_lower(attributes: Mapping[str, Node], signature: Mapping[str, str]) -> dict[str, int]:
    listed = attributes.get("tir_non_negative_var", ())
    names = {str(name) for name in listed} if isinstance(listed, tvm_ffi.Array) else set()
    zeros = {ours: 0 for ours, theirs in signature.items() if theirs in names}
    return zeros | _declared(attributes, "tir_var_lower_bound", signature)


_VALUES: Mapping[type, Callable[[FunctionExtractor, Head, Node], ir.Instruction]] = {
    tvm.ir.Call: translate_call,
    tvm.ir.Tuple: FunctionExtractor._tuple,
    tvm.ir.TupleGetItem: FunctionExtractor._field,
    relax.If: FunctionExtractor._if,
    relax.SeqExpr: FunctionExtractor._sequence_value,
    relax.Function: FunctionExtractor._local_function,
}
# what may stand as an argument only in modules that are not in normal form
_COMPUTED = frozenset({tvm.ir.TupleGetItem, relax.If, relax.SeqExpr, relax.Function})

"""A module at one stage of compilation as a program: its functions, their blocks and bindings in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import tvm
import tvm_ffi
from tvm import relax, tirx

from symalloc.program import ir
from symalloc.program.operands import type_of
from symalloc.program.span import NO_SPANS, NumberedSpans, PrintedScript, Source, SourceMap, Span, script_maps
from symalloc.program.types import OpaqueType, StorageType, TupleType, filled_in
from symalloc.relax.extract.calls import MAKE_PRIM_VALUE, MEMORY_OPERATORS, made_number, translate_call
from symalloc.relax.extract.context import MAY_GIVE_SHAPES, VARIABLES, CommonFields, Context, ModuleFacts
from symalloc.relax.extract.kernel_body import extract_kernel
from symalloc.relax.extract.shape_heap import ShapeHeaps, returned, slot_fault
from symalloc.relax.extract.tir_to_expr import NotASizeError, TirToExpr, truth_value
from symalloc.relax.ir_types import BindingNode, Node, VarNode, bindings_in, calls_of, elements, span_given
from symalloc.size.condition import Condition
from symalloc.size.expr import ZERO
from symalloc.size.parse import SizeSyntaxError, parse_condition


def extract(
    mod: tvm.IRModule,
    *,
    name: str,
    stage: str = "as-is",
    source: Source | None = None,
    line: int | None = None,
    handles: bool = False,
    open_shapes: bool = False,
    maps: Callable[[str], SourceMap] = lambda _: NO_SPANS,
) -> ir.Program:
    """The memory program of `mod`.

    `name` is the module's name in its file; `stage` says after which pass it was read.  With `source`, the
    text it was parsed from, instructions have spans; without it those that `maps` give for a function, or
    none.  `line` is where in the text the module's `class` or `def` stands; without it the class of that name
    is taken.

    With `handles` each instruction carries the binding that it comes from; such a program does not pickle.
    With `open_shapes` a tensor may be placed whose extents are not known, as behind VMShapeLower.
    """
    if source is not None:
        maps = script_maps(source, line or name, trust_spans=source.origin is None)
    defined = {variable.name_hint: function for variable, function in mod.functions.items()}
    functions = {n: f for n, f in defined.items() if isinstance(f, relax.Function)}
    host = {n: f for n, f in defined.items() if isinstance(f, tirx.PrimFunc)}
    kernels = {n: extract_kernel(n, f) for n, f in host.items()}
    in_place = frozenset[str]() if stage in _LOWERED else _called_in_place(mod)
    module = ModuleFacts(
        kernels=kernels,
        functions=functions,
        externs={n: str(f.global_symbol) for n, f in defined.items() if isinstance(f, relax.ExternFunc)},
        symbols={
            str(f.attrs["global_symbol"]): n for n, f in host.items() if "global_symbol" in (f.attrs or {})
        },
        lowered=any(_is_lowered(f.body, kernels) for f in functions.values()),
        planned=stage in _PLANNED,
        devices=tuple(mod.global_infos["vdevice"]) if "vdevice" in mod.global_infos else (),
        handles=handles,
        open_shapes=open_shapes,
        host=host,
        views=_views_to_be(mod, stage) if in_place else {},
    )
    return ir.Program(
        name=name,
        functions={n: FunctionExtractor(module, maps(n)).run(n, f) for n, f in functions.items()},
        kernels=kernels,
        stage=stage,
        devices=tuple(str(device.target.kind.name) for device in module.devices),
        in_place=in_place | {n for n, f in host.items() if WRITTEN_IN_PLACE in (f.attrs or {})},
        source=source,
    )


def extract_numbered(
    mod: tvm.IRModule,
    *,
    name: str,
    stage: str,
    file: str,
    pickles: bool = False,
    given: tvm.IRModule | None = None,
) -> ir.Program:
    """The memory program of `mod`, its spans numbers of bindings: its `source` finds them in the script of
    `mod` when it is asked.

    `file` is the file that the module came from.  The program holds `mod`, unless it `pickles`: then the
    script is printed at once.  `given` is the module that TVM's passes made `mod` of.
    """
    names: dict[str, list[str]] = {}

    def numbers(function: str) -> NumberedSpans:
        made = NumberedSpans(function)
        names[function] = made.names
        return made

    def script() -> str:
        return str(mod.script(show_meta=False))

    program = extract(mod, name=name, stage=stage, maps=numbers)
    source = PrintedScript(script=script() if pickles else script, file=file, origin=stage, names=names)
    before = frozenset[str]() if given is None or given is mod else _called_in_place(given)
    return replace(program, source=source, in_place=program.in_place | before)


WRITTEN_IN_PLACE = "symalloc.in_place"  # an attribute of kernels that write over what they are given
_IN_PLACE = frozenset({"relax.call_tir_inplace", "relax.call_inplace_packed"})


def _called_in_place(mod: tvm.IRModule) -> frozenset[str]:
    """The kernels and packed functions that in-place calls name."""
    callees = (arguments[0] for _, arguments in calls_of(mod, _IN_PLACE) if arguments)
    return frozenset(str(getattr(one, "name_hint", getattr(one, "global_symbol", ""))) for one in callees)


def _views_to_be(mod: tvm.IRModule, stage: str) -> Mapping[int, Node]:
    """The variables of `mod` that TVM makes views, by their addresses, with what they are views of.

    In dataflow blocks these are the results of all that leaves each element at its place, kernels among it.
    Nothing is known of a module that TVM does not lower.
    """
    passes = [relax.transform.RewriteDataflowReshape()]
    if stage == "as-is":
        passes.insert(0, relax.transform.LegalizeOps())
    try:
        with tvm.transform.PassContext(opt_level=2):  # whose instruments, if any, see none of it
            lowered = tvm.transform.Sequential(passes)(mod)
    except Exception:  # a pass raises whatever it raises
        return {}
    found = calls_of(lowered, {"relax.reshape"})
    return {binding.var.__chandle__(): arguments[0] for binding, arguments in found}


_PLANNED = frozenset({"StaticPlanBlockMemory", "KillAfterLastUse", "PlanMemory"})
"""The stages behind which operators are what code is generated for."""
_LOWERED = _PLANNED | {"CallTIRRewrite"}
"""The stages behind which no in-place call is left."""


def _is_lowered(body: Node, kernels: Mapping[str, ir.Kernel]) -> bool:
    """Return whether a function holds memory operators or direct kernel calls."""
    for binding in bindings_in(body):
        value = binding.value
        op: Node = value.op if type(value) is tvm.ir.Call else value
        if type(op) is tvm.ir.Op and op.name in MEMORY_OPERATORS:
            return True
        if type(op) is tvm.ir.GlobalVar and op.name_hint in kernels:
            return True
    return False


class FunctionExtractor(Context):
    """Walks one function.  Invariant: a variable is declared before anything that uses it is translated."""

    def run(self, name: str, function: Node) -> ir.Function:
        """The whole function; what is not understood becomes an instruction that says so."""
        self.heaps = ShapeHeaps(function.body)
        params = self.declare_parameters(function.params)
        signature = dict(self.symbols.original)
        body = self._block(function.body)
        attributes: Mapping[str, Node] = function.attrs or {}
        required, unread = self._required(str(attributes.get(ir.PLAN_CONDITION, "")))
        # variables that nothing binds are said to be so at the start
        said = [
            ir.NotUnderstood(var=var, what=f"the variable `{var.name}`, which nothing defines")
            for var in self._unbound.values()
        ]
        said += [ir.NotUnderstood(var=ir.Var("_", OpaqueType()), what=what) for what in unread]
        origins = self.symbols.origins
        variables = {n: v for n, v in self.symbols.variables.items() if origins[n] is not ir.Origin.UNDEFINED}
        return ir.Function(
            name=name,
            params=params,
            body=replace(body, instructions=(*said, *body.instructions)) if said else body,
            result_type=self.types.of(function.ret_ty),
            symbols=origins,
            private="global_symbol" not in attributes,
            declared_upper=_declared(attributes, "tir_var_upper_bound", signature),
            declared_lower=_declared(attributes, "tir_non_negative_var", signature)
            | _declared(attributes, "tir_var_lower_bound", signature),
            span=self.source_map.definition,
            result_span=self.source_map.result,
            bounded_results=bool(attributes.get("relax.memory_plan_dynamic_func_output", False)),
            required=required,
            variables=variables if self.handles else {},
            names=self.names,
        )

    def _required(self, text: str) -> tuple[tuple[Condition, ...], list[str]]:
        """The parts of the conditions that a plan rests on, and what is not understood of them.

        One that speaks of what becomes known later is needed there, as a whole.  Nothing is left of symbols
        behind VMShapeLower.
        """
        if not text or self.heaps.lowered:
            return (), []
        try:
            found = [*map(parse_condition, text.split(";"))]
        except SizeSyntaxError as problem:
            return (), [f"the attribute `{ir.PLAN_CONDITION}`, which is no condition: {problem}"]
        origins = self.symbols.origins
        unknown = sorted(frozenset[str]().union(*(one.symbols for one in found)) - origins.keys())
        if unknown:
            return (), [f"the attribute `{ir.PLAN_CONDITION}`, which names `{unknown[0]}`, no symbol here"]
        late = {name for name, origin in origins.items() if origin is ir.Origin.CAST}
        apart = (one.conjuncts if late.isdisjoint(one.symbols) else () for one in found)
        return tuple(part for one, parts in zip(found, apart, strict=True) for part in parts or (one,)), []

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
        head = CommonFields(var=ir.Var("_", self.types.of(node.ty)), span=None, handle=None)
        self.out.append(self.integers.note(self._translate(head, node)))
        return self.out[-1].var

    # -- bindings -------------------------------------------------------------------------------------------

    def _binding(self, binding: BindingNode) -> None:
        if type(binding) is relax.MatchCast:
            self._match_cast(binding)
            return
        value, var = binding.value, binding.var
        name = str(var.name)  # a text of TVM's holds an object
        source = self.renamed(value) if type(value) in VARIABLES else None
        if source is not None and self.handles and var.__chandle__() not in self._unbound:
            self._vars[var.__chandle__()] = source
            self.names.setdefault(source, []).append(name)
            return
        known = None if source is None else source.type
        span = None if self.source_map is NO_SPANS else self._span_of(name, value)
        if known is None:
            type_ = var.ty
            if type(type_) is tvm.ir.PrimType and self._bind_scalar(binding, span):
                return
            known = self.types.of(type_)
        declared = self.declare(var, name, known)
        head = self._head(declared, span, binding)
        made = self.integers.note(self._translate(head, value))
        viewed = self.module.views.get(var.__chandle__()) if self.module.views else None
        if viewed is not None and not isinstance(made, ir.View):
            shown = ir.Var(name, made.var.type)
            self.out.append(self.integers.note(replace(made, var=shown, handle=None)))
            shape, dtype = self.known_extents(shown), getattr(shown.type, "dtype", None)
            of = self.operand(viewed)
            made = ir.View(**head, source=of, shape=shape, dtype=dtype, offset=ZERO, kind="reshape")
            made = self.integers.note(made)
        self.out.append(made)
        if made.var is not declared:
            self.retype(var, made.var)
        if type(made) in MAY_GIVE_SHAPES:
            self.note_shape(made)
            if type(made) is ir.CallOperator and made.name == "relax.null_value":
                self.nulls.add(var.__chandle__())

    def _span_of(self, name: str, value: Node) -> Span | None:
        return self.source_map.span_of("" if type(value) is relax.If else name, span_given(value))

    def _declared(self, var: VarNode) -> ir.Var:
        return self.declare(var, str(var.name), self.types.of(var.ty))

    def _head(self, var: ir.Var, span: Span | None, binding: BindingNode) -> CommonFields:
        return {"var": var, "span": span, "handle": binding if self.handles else None}

    def _match_cast(self, binding: BindingNode) -> None:
        span = self._span_of(str(binding.var.name), binding.value)
        source = self._value_operand(binding.value)
        if self.heaps.lowered:
            self._checked_before(binding, span, source)
            return
        defines = self.types.define(binding.ty, ir.Origin.CAST, self.origin_of_cast(source))
        target = self.types.of(binding.ty)
        if isinstance(source, ir.Scalar) and source.value is not None:
            self.symbols.bind(binding.var, source.value)
        head = self._head(self._declared(binding.var), span, binding)
        cast = ir.MatchCast(**head, source=source, target=target, defines=defines)
        self.out.append(self.integers.note(cast))
        self.note_shape(self.out[-1])

    def _checked_before(self, binding: BindingNode, span: Span | None, source: ir.Operand) -> None:
        """Behind VMShapeLower a match_cast does nothing: a match_shape in front of it compares."""
        var, known = self._declared(binding.var), type_of(source)
        given = filled_in(known, var.type) if type(known) is type(var.type) else var.type
        head = self._head(ir.Var(var.name, given), span, binding)
        self.retype(binding.var, head["var"])
        self.out.append(self.integers.note(ir.Alias(**head, source=source)))
        self.note_shape(self.out[-1])

    def _bind_scalar(self, binding: BindingNode, span: Span | None) -> bool:
        """A scalar bound to an expression stands for it from here on; False if that has no exact form."""
        var, value = binding.var, binding.value
        try:
            form, computed = self._computed(value)
            if str(var.ty.dtype) == "bool":
                self.symbols.bind_flag(var, form.condition(computed))
                source = ir.Scalar(None)
            else:
                bound = made_number(self, value) if _makes_number(value) else form.expr(computed)
                self.symbols.bind(var, bound)
                source = ir.Scalar(bound)
        except NotASizeError as reason:
            return self._bind_unknown_slot(binding, span, reason)
        self.out.append(ir.Alias(**self._head(self._declared(var), span, binding), source=source))
        return True

    def _bind_unknown_slot(self, binding: BindingNode, span: Span | None, reason: NotASizeError) -> bool:
        """A scalar out of a slot of which nothing is known is no free symbol; False for any other value."""
        if not _makes_number(binding.value):
            return False
        self.symbols.bind(binding.var, None)
        head = self._head(self._declared(binding.var), span, binding)
        fault = slot_fault(reason, MAKE_PRIM_VALUE)
        self.out.append(self.not_understood(head, f"`{MAKE_PRIM_VALUE}` with {reason}", fault=fault))
        return True

    def _computed(self, value: Node) -> tuple[TirToExpr, Node]:
        """A scalar that the program computes, and the form of its expression; raises NotASizeError."""
        called: Node = value.op if type(value) is tvm.ir.Call else value
        if type(called) is tvm.ir.GlobalVar and called.name_hint in self.module.host:
            function = self.module.host[called.name_hint]
            given = [
                truth_value(self.form.condition(one)) if str(one.ty.dtype) == "bool" else self.form.expr(one)
                for one in value.args
            ]
            return returned(function, given, self.symbols.is_size)
        return self.form, value

    # -- values ---------------------------------------------------------------------------------------------

    def _translate(self, head: CommonFields, value: Node) -> ir.Instruction:
        try:
            return _VALUES.get(type(value), FunctionExtractor._alias)(self, head, value)
        except NotASizeError as reason:
            return self.not_understood(head, str(reason), getattr(value, "fields", ()))

    def _alias(self, head: CommonFields, value: Node) -> ir.Instruction:
        source = self.operand(value)
        if isinstance(source, ir.Var) and isinstance(source.type, StorageType):
            head = self.storage_head(head)
        return ir.Alias(**self.known_head(head, type_of(source)), source=source)

    def _tuple(self, head: CommonFields, value: Node) -> ir.Instruction:
        fields = self.operands(elements(value.fields))
        head = self.known_head(head, TupleType(fields=tuple(map(type_of, fields))))
        return ir.MakeTuple(**head, fields=fields)

    def _field(self, head: CommonFields, value: Node) -> ir.Instruction:
        source, index = self.operand(value.tuple_value), int(value.index)
        kind = type_of(source)
        if isinstance(kind, TupleType) and 0 <= index < len(kind.fields):
            head = self.known_head(head, kind.fields[index])
        return ir.TakeField(**head, source=source, index=index)

    def _local_function(self, head: CommonFields, value: Node) -> ir.Instruction:
        """A closure reads what it captures; one that calls itself does not capture itself."""
        made = self.not_understood(head, "a local function (a closure)", relax.analysis.free_vars(value))
        return replace(made, reads=tuple(read for read in made.reads if read is not made.var))

    def _if(self, head: CommonFields, value: Node) -> ir.Instruction:
        test, condition = self.operand(value.cond), self.condition(value.cond)
        before, held = self.heaps.saved(), dict(self.integers.held)
        then = self._block(value.true_branch)
        behind_then, self.heaps.slots = self.heaps.slots, before
        integers_behind_then, self.integers.held = self.integers.held, held
        otherwise = self._block(value.false_branch)
        self.heaps.join(behind_then)
        self.integers.join(integers_behind_then)
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
    if key == "tir_non_negative_var":
        given = dict.fromkeys(bounds, 0) if isinstance(bounds, tvm_ffi.Array) else {}
    else:
        given = dict(bounds.items()) if isinstance(bounds, tvm_ffi.Map) else {}
    numbers = {str(name): int(value) for name, value in given.items() if isinstance(value, int | tirx.IntImm)}
    return {ours: numbers[theirs] for ours, theirs in signature.items() if theirs in numbers}


_VALUES: Mapping[type, Callable[[FunctionExtractor, CommonFields, Node], ir.Instruction]] = {
    tvm.ir.Call: translate_call,
    tvm.ir.Tuple: FunctionExtractor._tuple,
    tvm.ir.TupleGetItem: FunctionExtractor._field,
    relax.If: FunctionExtractor._if,
    relax.SeqExpr: lambda self, head, value: ir.Alias(**head, source=self._sequence(value)),
    relax.Function: FunctionExtractor._local_function,
}
# what may stand as an argument only in modules that are not in normal form
_COMPUTED = frozenset({tvm.ir.TupleGetItem, relax.If, relax.SeqExpr, relax.Function})

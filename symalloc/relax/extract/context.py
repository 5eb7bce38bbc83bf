"""State of the extraction of one function: its symbols, types, variables, and the module around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeAlias, TypedDict

import tvm
from tvm import relax, runtime
from tvm.ir.prim import expr as prim
from tvm_ffi import structural_equal

from symalloc.analysis.call_expansion import bind_parameters
from symalloc.program import ir
from symalloc.program.ir import SlotFault
from symalloc.program.operands import leaves_in, operands_of
from symalloc.program.span import NO_SPANS, SourceMap, Span
from symalloc.program.types import (
    FunctionType,
    OpaqueType,
    ScalarType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    filled_in,
    is_open,
    record,
    substituted,
)
from symalloc.relax.extract.kernel_body import follow_kernel
from symalloc.relax.extract.kernel_integers import MOST_INTEGERS, Integers
from symalloc.relax.extract.shape_heap import ShapeHeaps
from symalloc.relax.extract.tir_to_expr import NotASizeError, Symbols, TirToExpr, to_dtype, truth_value
from symalloc.relax.ir_types import BindingNode, CallNode, Node, TypeNode, VarNode, elements
from symalloc.size.condition import FALSE, TRUE, Condition
from symalloc.size.expr import Expr

VARIABLES = (tvm.ir.Var, relax.DataflowVar)
_MOST_SHOWN = 100  # characters of an extent
_SHAPES = (relax.ShapeExpr, relax.ShapeType)
MAY_GIVE_SHAPES = frozenset({ir.CallOperator, ir.CallPacked, ir.Alias, ir.MatchCast})
_NOTED = frozenset({ir.Alias, ir.CallKernel, ir.CallTIR, ir.MakeTuple, ir.MatchCast, ir.TakeField, ir.View})


class CommonFields(TypedDict):
    """The fields that every instruction has: `Instruction(**head, …)`."""

    var: ir.Var
    span: Span | None
    handle: BindingNode | None


class Types:
    """Converts the types of one function; `devices` are the module's virtual devices in order."""

    def __init__(self, form: TirToExpr, symbols: Symbols, devices: Sequence[Node] = ()) -> None:
        self._form = form
        self._symbols = symbols
        self._devices = devices
        self._shapes: dict[int, tuple[Node, tuple[Expr, ...] | None]] = {}
        self._extents: dict[tuple[int | tuple[int], ...], tuple[Node, tuple[Expr, ...]]] = {}
        self._equal: dict[tuple[Expr, ...], tuple[Expr, ...]] = {}
        self._known: dict[int, tuple[TypeNode, Type]] = {}
        self._tensors: dict[tuple[int, int, int, int], tuple[TypeNode, TensorType]] = {}

    def of(self, type_: TypeNode) -> Type:
        """Our form of a TVM type; what holds no tensor, shape or scalar is opaque."""
        kind, handle = type(type_), type_.__chandle__()
        if kind is relax.TensorType:
            return self._tensor(type_)
        if handle not in self._known:
            rule = _TYPES.get(kind)
            self._known[handle] = type_, OpaqueType() if rule is None else rule(self, type_)
        return self._known[handle][1]

    def shape(self, shape: Node) -> tuple[Expr, ...]:
        """The extents of a shape, its type, or a variable whose type tells them; raises NotASizeError."""
        handle = shape.__chandle__()
        if handle not in self._shapes:
            values = shape.values if type(shape) in _SHAPES else getattr(shape.ty, "values", None)
            self._shapes[handle] = shape, None if values is None else self.extents(values)
        known = self._shapes[handle][1]
        if known is None:
            raise NotASizeError("a shape whose extents are not known")
        return known

    def know_shape(self, var: VarNode, extents: tuple[Expr, ...] | None) -> None:
        """The shape variable `var` has these extents, whatever its type tells."""
        self._shapes[var.__chandle__()] = (var, extents)

    def shape_or_none(self, shape: Node | None) -> tuple[Expr, ...] | None:
        """As `shape`, None where the extents are unknown or have no exact form."""
        try:
            return None if shape is None else self.shape(shape)
        except NotASizeError:
            return None

    def inexact(self, shape: Node) -> str:
        """The extent of a shape that has no exact form, and why; nothing where there is none."""
        for node in elements(shape.values) if type(shape) is relax.ShapeExpr else ():
            try:
                self._form.expr(node)
            except NotASizeError as reason:
                text = str(node)
                said = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
                return f"`{said}` has no exact form ({reason})"
        return ""

    def extents(self, values: Node) -> tuple[Expr, ...]:
        """Each extent as an expression; raises NotASizeError.

        Equal lists give one tuple: a layer has the shapes of the one before.
        """
        nodes = elements(values)
        key = tuple([n.value if type(n) is prim.IntImm else (n.__chandle__(),) for n in nodes])
        if key not in self._extents:
            found = tuple(map(self._form.expr, nodes))
            self._extents[key] = values, self._equal.setdefault(found, found)
        return self._extents[key][1]

    def define(
        self, type_: TypeNode, origin: ir.Origin, of_shape: ir.Origin = ir.Origin.SCALAR
    ) -> frozenset[str]:
        """Defines the symbols that stand alone as an extent in `type_`; returns those not defined before.

        `of_shape` is the origin of those of an R.Shape: nothing checks that its numbers are not negative.
        """
        if type(type_) is tvm.ir.TupleType:
            return frozenset().union(*(self.define(field, origin, of_shape) for field in type_.fields))
        is_tensor = type(type_) is relax.TensorType
        shape, origin = (type_.shape, origin) if is_tensor else (type_, of_shape)
        values = elements(shape.values) if type(shape) in _SHAPES and shape.values is not None else ()
        names = {self._symbols.define(v, origin) for v in values if type(v) in VARIABLES}
        return frozenset(name for name in names if name is not None)

    # -- one rule a kind of type ----------------------------------------------------------------------------

    def _tensor(self, type_: TypeNode) -> TensorType:
        """Nearly every variable has a type of its own; those of equal parts give one."""
        element, device, shape = type_.dtype, type_.vdevice, self.shape_or_none(type_.shape)
        ndim = type_.ndim if shape is None else len(shape)
        key = id(shape), ndim, _address(element), _address(device)
        if key not in self._tensors:
            self._tensors[key] = (
                type_,
                TensorType(
                    shape=shape,
                    dtype=None if element is None else to_dtype(element.dtype),
                    ndim=ndim if ndim >= 0 else None,
                    # by structure, for VDevice.same_as never returns
                    device=next((i for i, d in enumerate(self._devices) if structural_equal(d, device)), 0),
                    scope="global" if device is None else str(device.memory_scope) or "global",
                ),
            )
        return self._tensors[key][1]


_TYPES: Mapping[type, Callable[[Types, TypeNode], Type]] = {
    relax.ShapeType: lambda own, t: ShapeType(
        values=own.shape_or_none(t), ndim=t.ndim if t.ndim >= 0 else None
    ),
    tvm.ir.PrimType: lambda _, type_: ScalarType(value=None, dtype=to_dtype(type_.dtype)),
    tvm.ir.TupleType: lambda own, t: TupleType(fields=tuple([own.of(field) for field in elements(t.fields)])),
    relax.FuncType: lambda *_: FunctionType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """The facts about a module that the extraction of its functions needs.

    `functions` are the Relax functions and `host` the PrimFuncs, both as TVM has them, `externs` gives the
    symbol that an ExternFunc stands for, `symbols` the kernels by the symbol that they are exported as.
    `lowered`: whether operators were lowered to calls already, so that a remaining R.reshape is a view and
    not a copy.  `planned`: no pass lowers operators any more.  `handles`: instructions carry their bindings.
    `open_shapes`: a tensor may be placed whose extents are not known.  `signatures` keeps what
    `Context.result_of` has found, and `names` those of callees by their addresses.  `views` holds what
    variables, by their addresses, are views of once TVM has lowered the module.
    """

    kernels: Mapping[str, ir.Kernel]
    functions: Mapping[str, Node]
    externs: Mapping[str, str] = field(default_factory=dict)
    symbols: Mapping[str, str] = field(default_factory=dict)
    lowered: bool = False
    planned: bool = False
    devices: tuple[Node, ...] = ()
    handles: bool = False
    open_shapes: bool = False
    host: Mapping[str, Node] = field(default_factory=dict)
    signatures: dict[str, tuple[list[Type], Type]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    views: Mapping[int, Node] = field(default_factory=dict)


class Context:
    """State of the extraction of one function.

    `out` is the list that instructions of the block under way are added to, `heaps` the shape heaps of its
    body.
    """

    heaps: ShapeHeaps

    def __init__(self, module: ModuleFacts, source_map: SourceMap = NO_SPANS) -> None:
        self.module = module
        self.source_map = source_map
        self.handles = module.handles
        self.symbols = Symbols()
        self.form = TirToExpr(self.symbols.resolve, self.symbols.resolve_flag, self.symbols.is_size)
        self.types = Types(self.form, self.symbols, module.devices)
        self.out: list[ir.Instruction] = []
        self.integers = KnownIntegers(module.kernels, module.host)
        self._vars: dict[int, ir.Var] = {}
        self.names: dict[ir.Var, list[str]] = {}
        self.nulls: set[int] = set()  # the variables that are bound to R.null_value()
        self._unbound: dict[int, ir.Var] = {}
        self._of_tensors: set[ir.Var] = set()
        self._early: set[ir.Var] = set()

    # -- variables ------------------------------------------------------------------------------------------

    def renamed(self, value: VarNode) -> ir.Var | None:
        """The tensor that a binding gives another name; None where its type does not tell all of it, or it is
        no other name.
        """
        source = self._vars.get(value.__chandle__())
        kind = None if source is None else source.type
        told = type(kind) is TensorType and kind.shape is not None and kind.dtype is not None
        return source if told else None

    def declare(self, var: VarNode, name: str, kind: Type) -> ir.Var:
        """Our variable for `var`; an integer becomes a symbol unless it stands for an expression."""
        if type(kind) is ScalarType:
            kind = self._scalar_type(var, kind)
        handle = var.__chandle__()
        early = self._unbound.pop(handle, None) if self._unbound else None
        if early is not None:
            self._early.add(early)
            return early
        made = self._vars[handle] = ir.Var(name, kind)
        return made

    def declare_parameters(self, params: Node) -> tuple[ir.Var, ...]:
        """Our variables for the parameters of a function; their extents become symbols."""
        known = elements(params)
        for param in known:
            self.types.define(param.ty, ir.Origin.DIMENSION)
        return tuple([self.declare(param, str(param.name), self.types.of(param.ty)) for param in known])

    def result_of(self, name: str, arguments: Sequence[ir.Operand]) -> Type:
        """The type of what a function of the module returns for arguments, over the symbols here.

        VMShapeLower drops the shapes of what a call returns.
        """
        known = self.module.signatures
        if name not in known:
            callee, context = self.module.functions[name], Context(self.module)
            declared = context.declare_parameters(callee.params)
            known[name] = [param.type for param in declared], context.types.of(callee.ret_ty)
        params, result = known[name]
        return substituted(result, bind_parameters(params, arguments))

    def storage_head(self, head: CommonFields) -> CommonFields:
        """`head` with a variable of a storage's type; one used before it is bound must stay what it is."""
        var = head["var"]
        return head if var in self._early else CommonFields({**head, "var": ir.Var(var.name, StorageType())})

    def known_head(self, head: CommonFields, known: Type) -> CommonFields:
        """`head` with the extents that its variable's type lacks, where `known` tells them."""
        var = head["var"]
        if not is_open(var.type) or var in self._early:
            return head
        filled = filled_in(var.type, known)
        return head if filled is var.type else CommonFields({**head, "var": ir.Var(var.name, filled)})

    def _scalar_type(self, var: VarNode, type_: ScalarType) -> ScalarType:
        if type_.dtype is not None and type_.dtype.name == "bool":
            return ScalarType(value=truth_value(self.symbols.define_flag(var)), dtype=type_.dtype)
        if type_.dtype is None or not type_.dtype.name.startswith(("int", "uint")) or type_.dtype.lanes != 1:
            return type_
        self.symbols.define(var, ir.Origin.SCALAR)
        return ScalarType(value=self._scalar(var).value, dtype=type_.dtype)

    def retype(self, var: VarNode, made: ir.Var) -> None:
        """`made` takes the place of what `declare` returned for `var`."""
        self._vars[var.__chandle__()] = made
        if isinstance(made.type, ShapeType):
            self.types.know_shape(var, made.type.values)

    def is_absent(self, node: Node) -> bool:
        """Return whether an optional argument was left out: an empty tuple, or a null value."""
        return len(node.fields) == 0 if type(node) is tvm.ir.Tuple else node.__chandle__() in self.nulls

    def note_shape(self, made: ir.Instruction) -> None:
        """Take note of the shapes of tensors, under whatever name: none of their numbers is negative."""
        match made:
            case ir.CallOperator(name="relax.shape_of") | ir.CallPacked(name="vm.builtin.shape_of"):
                self._of_tensors.add(made.var)
            case ir.Alias(source=source) | ir.MatchCast(source=source) if source in self._of_tensors:
                self._of_tensors.add(made.var)

    def origin_of_cast(self, source: ir.Operand) -> ir.Origin:
        """The origin of the symbols that are the extents of a tensor, or the numbers of an R.Shape."""
        counts = isinstance(getattr(source, "type", None), TensorType) or source in self._of_tensors
        return ir.Origin.CAST if counts else ir.Origin.SCALAR

    def name_in(self, node: Node, field: str) -> str:
        """The text in a field of a node of the module, which is read once."""
        names, address = self.module.names, node.__chandle__()
        if address not in names:
            names[address] = str(getattr(node, field))
        return names[address]

    # -- operands -------------------------------------------------------------------------------------------

    def operand(self, node: Node) -> ir.Operand:
        """The operand that an argument is; raises NotASizeError for a shape without an exact form."""
        kind = type(node)
        if kind not in VARIABLES:
            return self.literal(node)
        found = self._vars.get(node.__chandle__())
        if found is None:
            return self._free_variable(node)
        return self._scalar(node) if type(found.type) is ScalarType else found

    def literal(self, node: Node) -> ir.Operand:
        """The operand that an argument other than a variable is."""
        rule = _OPERANDS.get(type(node))
        return self._scalar(node) if rule is None else rule(self, node)

    def operands(self, nodes: Iterable[Node]) -> tuple[ir.Operand, ...]:
        """The operands of several arguments."""
        return tuple([self.operand(node) for node in nodes])

    def _free_variable(self, node: Node) -> ir.Operand:
        """A symbol used as a value, or a variable bound further on (in another branch), or nowhere."""
        if type(node.ty) is tvm.ir.PrimType:
            return self._scalar(node)
        handle = node.__chandle__()
        made = self._unbound[handle] = self._vars[handle] = ir.Var(node.name, self.types.of(node.ty))
        return made

    def _scalar(self, node: Node) -> ir.Scalar:
        try:
            if str(node.ty.dtype) == "bool":
                return ir.Scalar(truth_value(self.form.condition(node)))
            return ir.Scalar(self.form.expr(node))
        except NotASizeError:
            return ir.Scalar(None)

    def _constant(self, node: Node) -> ir.Operand:
        type_ = self.types.of(node.ty)
        if not isinstance(node.value, runtime.Tensor):
            return ir.TextLiteral(str(node.value))
        if not isinstance(type_, TensorType):
            return ir.TextLiteral(str(node))
        dtype, numel = type_.dtype, type_.numel
        count = None if numel is None else numel.as_constant
        integers = dtype is not None and (dtype.name == "bool" or dtype.name.startswith(("int", "uint")))
        known = count is not None and count <= MOST_INTEGERS and integers
        return ir.ConstantTensor(type_, tuple(map(int, node.value.numpy().flatten())) if known else None)

    # -- sizes and conditions -------------------------------------------------------------------------------

    def constant(self, node: Node, what: str) -> int:
        """An integer argument that must be a constant; raises NotASizeError naming `what`."""
        if type(node) is prim.IntImm:
            return int(node.value)
        value = self.form.expr(node).as_constant
        return not_a_size(f"{what} that is no constant") if value is None else value

    def text(self, node: Node, what: str) -> str:
        """A string argument that must be a literal; raises NotASizeError naming `what`."""
        return str(node.value) if type(node) is tvm.ir.StringImm else not_a_size(f"{what} that is no literal")

    def dtype_of(self, node: Node) -> Node:
        """The dtype that an `R.dtype(…)` argument holds; raises NotASizeError for anything else."""
        value = node.value if type(node) is tvm.ir.GenericConst else None
        if value is None or isinstance(value, runtime.Tensor):
            not_a_size("a dtype that is no literal")
        return value

    def condition(self, node: Node) -> Condition | None:
        """The condition an If or assertion asks for; None where it is none on sizes."""
        if type(node) is tvm.ir.GenericConst:
            operand = self.operand(node)
            values = operand.values if isinstance(operand, ir.ConstantTensor) else None
            return None if values is None or len(values) != 1 else (TRUE if values[0] else FALSE)
        try:
            return self.form.condition(node)
        except NotASizeError:
            return None

    def not_understood(
        self, head: CommonFields, what: str, reads: Iterable[Node] = (), fault: SlotFault | None = None
    ) -> ir.NotUnderstood:
        """The instruction for what is not verified; `reads` are TVM expressions, tuples taken apart."""
        known: list[ir.Operand] = []
        for node in reads:
            for part in elements(node.fields) if type(node) is tvm.ir.Tuple else (node,):
                with suppress(NotASizeError):
                    known.append(self.operand(part))
        return ir.NotUnderstood(**head, what=what, reads=tuple(known), fault=fault)

    def known_extents(self, var: ir.Var) -> tuple[Expr, ...] | None:
        """The extents that the type of a variable tells."""
        return var.type.shape if isinstance(var.type, TensorType) else None


@record(eq=False, kw_only=False)
class CallSite:
    """A call of TVM's with its arguments, and the fields of the instruction to make of it."""

    context: Context
    head: CommonFields
    call: CallNode
    arguments: Sequence[Node]

    @property
    def var(self) -> ir.Var:
        """The variable that receives the result."""
        return self.head["var"]

    def operand(self, index: int) -> ir.Operand:
        """The operand that an argument is; raises NotASizeError."""
        return self.context.operand(self.arguments[index])

    @property
    def operands(self) -> tuple[ir.Operand, ...]:
        """The operands that all arguments are; raises NotASizeError."""
        return self.context.operands(self.arguments)

    def constant(self, index: int, what: str) -> int:
        """An integer argument that must be a constant; raises NotASizeError naming `what`."""
        return self.context.constant(self.arguments[index], what)

    def not_understood(self, what: str, reads: Iterable[Node]) -> ir.NotUnderstood:
        """The instruction for a call that is not verified."""
        return self.context.not_understood(self.head, what, reads)


Handler: TypeAlias = Callable[[CallSite], ir.Instruction]


def _address(part: Node | None) -> int:
    return 0 if part is None else part.__chandle__()


def not_a_size(reason: str) -> NoReturn:
    """Raises NotASizeError."""
    raise NotASizeError(reason)


_OPERANDS: Mapping[type, Callable[[Context, Node], ir.Operand]] = {
    relax.ShapeExpr: lambda self, node: ir.ShapeValue(self.types.shape(node)),
    tvm.ir.Tuple: lambda self, node: ir.TupleValue(self.operands(elements(node.fields))),
    tvm.ir.GenericConst: Context._constant,
    tvm.ir.StringImm: lambda _, node: ir.TextLiteral(str(node.value)),
    tvm.ir.GlobalVar: lambda _, node: ir.FunctionRef(node.name_hint),
    relax.ExternFunc: lambda _, node: ir.FunctionRef(str(node.global_symbol)),
}


# -- integers that the tensors of a function hold because constants say so, through kernels and views ------


class KnownIntegers:
    """The integers in the tensors of one function, at the place that its extraction has got to.

    `held` are those in each memory, which is called by the first of its names.
    """

    def __init__(self, kernels: Mapping[str, ir.Kernel], host: Mapping[str, Node]) -> None:
        self._kernels, self._host = kernels, host
        self._read: dict[tuple[str, int], tuple[Sequence[int], Sequence[int], bool]] = {}
        self.held: dict[ir.Operand, Integers] = {}
        self._first: dict[ir.Operand, ir.Operand] = {}
        self._fields: dict[ir.Operand, tuple[ir.Operand, ...]] = {}

    def join(self, other: Mapping[ir.Operand, Integers]) -> None:
        """Keep what is also so behind the `other` side of an If."""
        self.held = {memory: values for memory, values in self.held.items() if other.get(memory) == values}

    def note(self, made: ir.Instruction) -> ir.Instruction:
        """Note what an instruction does; return it with the accesses that known integers tell."""
        if not self.held and type(made) not in _NOTED:
            return made
        match made:
            case ir.CallKernel() | ir.CallTIR():
                return self._called(made)
            case ir.Alias(source=source) | ir.MatchCast(source=source):
                self._first[made.var] = self._memory(source)
            case ir.View(source=source, kind="reshape" | "ensure_zero_offset"):
                self._first[made.var] = self._memory(source)
            case ir.MakeTuple(fields=fields):
                self._fields[made.var] = fields
            case ir.TakeField(source=source, index=index):
                fields = source.items if isinstance(source, ir.TupleValue) else self._fields.get(source, ())
                if index < len(fields):
                    self._first[made.var] = self._memory(fields[index])
            case _:
                for operand in operands_of(made):
                    for leaf in leaves_in(operand):
                        self.held.pop(self._memory(leaf), None)
        return made

    def _memory(self, operand: ir.Operand) -> ir.Operand:
        return self._first.get(operand, operand)

    def _called(self, call: ir.CallKernel | ir.CallTIR) -> ir.Instruction:
        """Note what a kernel stores."""
        arguments, first, held = self._arguments(call), self._first, self.held
        read, writes, fresh = self._buffers(call.kernel, len(arguments))
        written = {first.get(arguments[n], arguments[n]): n for n in writes}
        given: list[tuple[int, Integers]] = []
        for number in read:
            memory = first.get(arguments[number], arguments[number])
            values = memory.values if isinstance(memory, ir.ConstantTensor) else held.get(memory)
            if values is not None and memory not in written:
                given.append((number, values))
        followed: tuple[ir.KernelAccess, ...] = ()
        stored: Mapping[int, Integers] = {}
        if given or fresh:
            followed, stored = follow_kernel(self._host[call.kernel], tuple(given))
        for memory, number in written.items():
            held.pop(memory, None)
            if number in stored:
                held[memory] = stored[number]
        return replace(call, followed=followed) if followed else call

    def _buffers(self, kernel: str, given: int) -> tuple[Sequence[int], Sequence[int], bool]:
        """The numbers below `given` of buffers that a kernel only reads, or writes; True if it reads none."""
        if (kernel, given) not in self._read:
            every = enumerate(self._kernels[kernel].parameters[:given])
            buffers = [(n, one) for n, one in every if isinstance(one, ir.KernelBuffer)]
            read, written = ([n for n, one in buffers if one.writes is side] for side in (False, True))
            self._read[kernel, given] = read, written, not any(one.reads for _, one in buffers)
        return self._read[kernel, given]

    def _arguments(self, call: ir.CallKernel | ir.CallTIR) -> tuple[ir.Operand, ...]:
        """The arguments as the PrimFunc sees them; results that are fresh by their variables."""
        if isinstance(call, ir.CallKernel):
            return call.arguments
        results: tuple[ir.Operand, ...] = (call.var,)
        if isinstance(call.var.type, TupleType):
            results = tuple(ir.Var(f"{call.var.name}.{n}", kind) for n, kind in enumerate(call.outputs))
            self._fields[call.var] = results
        places = (*call.inplace, *(None for _ in call.outputs))
        for result, place in zip(results, places, strict=False):
            if place is not None and place < len(call.inputs):
                self._first[result] = self._memory(call.inputs[place])
        fresh = (result for result, place in zip(results, places, strict=False) if place is None)
        return (*call.inputs, *fresh)

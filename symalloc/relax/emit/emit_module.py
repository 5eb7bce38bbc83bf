"""Writes the plans of a program into its module: kernels that take offsets, and functions.

A function must stand where StaticPlanBlockMemory stands: after CallTIRRewrite, no dataflow blocks, in normal
form.  It gets a guard and arenas, and each planned `t = R.builtin.alloc_tensor(shape, dtype)` becomes
`t = R.memory.alloc_tensor(storage, offset, shape, dtype)`.  Where a user of `t` takes no offset,
`R.memory.ensure_zero_offset` stands in between; at multiples of 64 no bytes are copied.  What is not planned
is left for LowerAllocTensor.  Calls say their types, for TVM to infer nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import DataType, relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar, Op, StringImm

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Guard, GuardKind, Plan
from symalloc.planner.planned_program import first_uses, taken_apart
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.operands import extent_pairs, type_of
from symalloc.program.types import ALIGNMENT, TensorType, type_leaves
from symalloc.relax.emit.kernel_offsets import INDEX, EmissionError, offset_kernels, offset_uses, with_offsets
from symalloc.relax.emit.prim_builder import GuardWriter, PrimBuilder, uncaptured
from symalloc.relax.extract.tir_to_expr import NotASizeError
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    VarNode,
    bound,
    effect,
    elements,
    free_name,
    typed_call,
    typed_var,
)
from symalloc.relax.rewrite import BindingRewriter, ModuleDraft, by_binding, copied, forced_pure, with_body
from symalloc.size.choice import select
from symalloc.size.condition import conjunction, eq
from symalloc.size.expr import ONE, ZERO, Expr

# what LowerRuntimeBuiltin makes of R.memory.view.  That operator's type inference compares the view with
# the arena by TVM's analyser: up to 50 ms a tensor, and again in every pass that visits it
VIEW = "runtime.TVMTensorCreateView"
_VIEWED = relax.ExternFunc(VIEW)

BYTE = GenericConst(DataType("uint8"), relax.AnyType())

_ALLOC_STORAGE = Op.get("relax.memory.alloc_storage")
_ALLOC_TENSOR = Op.get("relax.memory.alloc_tensor")
_STORAGE = relax.AnyType()
_RESHAPE = Op.get("relax.reshape")
_ENSURE_ZERO_OFFSET = Op.get("relax.memory.ensure_zero_offset")
BUILTIN_ALLOC = Op.get("relax.builtin.alloc_tensor")
_RESHAPED = relax.ExternFunc("vm.builtin.reshape")  # what LowerRuntimeBuiltin makes of R.reshape
_LEFT_ALONE = frozenset({ir.Alias, ir.CallKernel, ir.CallPacked})


def allocated(var: VarNode, devices: Sequence[Node]) -> relax.VarBinding:
    """`var` as a tensor of its own, on the one of `devices` that its type names."""
    type_, where = var.ty, [relax.prim_value(0), StringImm("global")]
    if type_.vdevice is not None:
        index = next(i for i, one in enumerate(devices) if tvm_ffi.structural_equal(one, type_.vdevice))
        where = [relax.prim_value(index), StringImm(str(type_.vdevice.memory_scope))]
    dtype = GenericConst(DataType(type_.dtype), relax.AnyType())
    return bound(var, typed_call(BUILTIN_ALLOC, [type_.shape, dtype, *where], type_, [type_]))


def bound_view(var: VarNode, source: Node, shape: Node) -> relax.VarBinding:
    """`var` as a view of `source`, from its first byte on."""
    dtype = GenericConst(DataType(var.ty.dtype), relax.AnyType())
    return bound(var, typed_call(_VIEWED, [source, shape, dtype, relax.prim_value(0)], var.ty, [var.ty]))


@dataclass(slots=True, kw_only=True)
class _FunctionWriter(BindingRewriter):
    """Writes one function; raises EmissionError where what was planned is not there.

    `cfg` is that of the extracted function, whose instructions have handles into `function`.
    `needs_zero_offset`: allocations that some user wants at offset zero.  `unplanned` is the
    function that runs where a guard fails, None where a guard raises; `given` what the caller gives.
    `written` are the variables whose bindings were met.
    """

    module: _ModuleWriter
    plan: Plan
    cfg: ControlFlowGraph
    function: relax.Function
    needs_zero_offset: Collection[ir.Var] = ()
    unplanned: GlobalVar | None = None
    given: CallerMemory | None = None
    prims: PrimBuilder = field(init=False)
    checks: GuardWriter = field(init=False)
    instructions: Mapping[int, ir.Instruction] = field(init=False)
    arenas: dict[int, VarNode] = field(default_factory=dict)
    places: dict[ir.Var, tuple[int, Expr]] = field(init=False)
    due: Mapping[ir.Var, Sequence[int]] = field(default_factory=dict)
    late: frozenset[ir.Var] = field(init=False)
    written: set[ir.Var] = field(default_factory=set)
    taken_apart: frozenset[ir.Var] = field(init=False)
    fields: dict[ir.Var, Sequence[Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.function.params) != len(self.cfg.function.params):
            raise EmissionError(f"`{self.plan.function}` has other parameters than what was planned")
        self.prims = PrimBuilder(self.cfg.function.variables)
        self.checks = GuardWriter(kind=self.module.kind, function=self.plan.function, prims=self.prims)
        self.instructions = by_binding(self.cfg)
        self.places = self.plan.places
        points = (*(a.defined_by for a in self.plan.arenas), *(g.defined_by for g in self.plan.guards))
        self.late = frozenset(var for var in points if var is not None)
        self.taken_apart = taken_apart(self.cfg)

    # -- the function ---------------------------------------------------------------------------------------

    def planned(self) -> relax.Function:
        """The function with the plan written into it, the checks that its match_casts need, and in words what
        the plan rests on.
        """
        guards = [g for g in self.plan.guards if g.defined_by is None]
        self.due = first_uses(self.plan, self.cfg)
        guarded = self.unplanned is None or not guards
        entry = list(self.guards(guards)) if guarded else []
        if self.given is not None:
            entry += self.given.checks(self.checks, self.module.draft, self.function)
        body = self.sequence(self.function.body, entry)
        if not self.written >= {*self.places, *self.late}:
            raise EmissionError(f"`{self.plan.function}` does not hold all that was planned")
        body = body if guarded else self.either(guards, body)
        written = forced_pure(with_body(self.function, body, () if self.given is None else self.given.params))
        if not self.plan.guards or self.module.kind == "none":
            return written
        return written.with_attr(ir.PLAN_CONDITION, "; ".join(str(g.check) for g in self.plan.guards))

    def either(self, guards: Sequence[Guard], planned: relax.SeqExpr) -> relax.SeqExpr:
        """An If whose else-branch calls the function as it was."""
        call = self.bind("unplanned", Call(self.unplanned, list(self.function.params)))
        fallback = self.builder.normalize(relax.SeqExpr([relax.BindingBlock([call])], call.var))
        condition = self.prims.condition(conjunction(g.check for g in guards))
        result = self.bind("result", relax.If(condition, planned, fallback))
        return self.builder.normalize(relax.SeqExpr([relax.BindingBlock([result])], result.var))

    def guards(self, guards: Sequence[Guard]) -> Iterator[relax.VarBinding]:
        """The checks of `guards`."""
        return self.checks.each(guards, uncaptured(self.function))

    def reserve(self, indices: Iterable[int]) -> Iterator[relax.VarBinding]:
        """Reserve these arenas."""
        for index in indices:
            arena = self.plan.arenas[index]
            if arena.result is not None and len(arena.placements) == 1:
                continue
            size = relax.ShapeExpr([self.prims(arena.size)])
            given = [size, relax.prim_value(arena.device), StringImm(arena.scope), BYTE]
            self.arenas[index] = typed_var("arena", _STORAGE)
            yield bound(self.arenas[index], typed_call(_ALLOC_STORAGE, given, _STORAGE))

    # -- the body ------------------------------------------------------------------------------------------

    def block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        """A block rebuilt."""
        if isinstance(block, relax.DataflowBlock):
            raise EmissionError("a dataflow block where memory is planned; run ToNonDataflow first")
        return BindingRewriter.block(self, block)

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        """`binding` and what stands around it."""
        instruction = self.instructions.get(binding.__chandle__())
        if instruction is None:
            if type(binding.value) is not tvm.ir.Var:
                raise EmissionError(f"`{self.plan.function}` holds more bindings than were planned")
            return [binding]  # another name
        var = instruction.var
        if var in self.due or var in self.late:
            self.written.add(var)
            reserved = self.reserve(self.due.get(var, ()))
            behind = self.guards([g for g in self.plan.guards if g.defined_by is var])
            return [*reserved, *self.stand_in(binding, instruction), *behind]
        return [binding] if type(instruction) in _LEFT_ALONE else self.stand_in(binding, instruction)

    def stand_in(self, binding: BindingNode, instruction: ir.Instruction) -> Iterable[relax.Binding]:
        """The bindings that stand for `binding` itself."""
        match instruction:
            case ir.AllocFresh(var=var) if var in self.places:
                self.written.add(var)
                return self.allocation(binding, var)
            case ir.MatchCast():
                return [*self.cast(instruction), binding]
            case ir.MakeTuple(var=var) if var in self.taken_apart and type(binding.value) is relax.Tuple:
                self.fields[var] = elements(binding.value.fields)
                return []
            case ir.TakeField(var=var, source=source, index=index) if source in self.fields:
                field = self.fields[source][index]
                if var in self.taken_apart and type(field) is relax.Tuple:
                    self.fields[var] = elements(field.fields)
                    return []
                return [relax.VarBinding(binding.var, field)]
            case ir.View(kind="reshape") if getattr(binding.value, "op", None) == _RESHAPE:
                return [binding if self.module.keeps_reshapes else self.reshape(binding)]
        return BindingRewriter.rewrite(self, binding)

    def reshape(self, binding: BindingNode) -> relax.VarBinding:
        """A view as a packed call: LegalizeOps, run again, would make it a kernel without offsets.

        It is the call that it becomes, but where CUDA graphs can capture what lies around it: they leave out
        what is called vm.builtin.
        """
        var, (source, shape) = binding.var, elements(binding.value.args)
        if any(arena.size.as_constant is None for arena in self.plan.arenas):
            return bound(var, typed_call(_RESHAPED, [source, shape], var.ty, [var.ty]))
        return bound_view(var, source, shape)

    def cast(self, cast: ir.MatchCast) -> Iterator[relax.VarBinding]:
        """Checks what a cast says of symbols that were known.

        KillAfterLastUse drops such a cast with its check where it knows the extents of both sides.
        """
        pairs = extent_pairs(type_of(cast.source), cast.target)
        claims = [eq(old, new) for old, new in pairs if new.symbols.isdisjoint(cast.defines)]
        open_claims = [c for c in claims if c.as_bool is not True]
        if open_claims:
            yield self.checks.cast(open_claims)

    def allocation(self, binding: BindingNode, var: ir.Var) -> list[relax.Binding]:
        """The tensor in its arena; its offset is folded into its data pointer where some user wants that.

        Raises EmissionError where that would copy the tensor: what is written to the copy is lost.
        """
        value = binding.value
        if type(value) is not Call or not BUILTIN_ALLOC.same_as(value.op):
            raise EmissionError(f"`{self.plan.function}` allocates other tensors than were planned")
        index, offset = self.places[var]
        arena = self.plan.arenas[index]
        shape, dtype, device, scope = elements(value.args)[:4]
        if arena.given and self.given is not None:
            source = self.given.places[arena.device, arena.scope].var
            given = [source, shape, dtype, self.prims(offset)]
            placed = typed_call(_VIEWED, given, value.ty, [value.ty], span=value.span)
        elif index in self.arenas:
            given = [self.arenas[index], self.prims(offset), shape, dtype, device]
            placed = typed_call(_ALLOC_TENSOR, given, value.ty, span=value.span)
        else:
            return self.result(binding, shape, [device, scope], arena.size)
        if var not in self.needs_zero_offset or offset.as_constant == 0:
            return [bound(binding.var, placed)]
        if not self.module.addresses:
            raise EmissionError(f"`{binding.var.name}` must start its storage on this target, and does not")
        away = typed_var(f"{binding.var.name}_placed", placed.ty)
        settled = typed_call(_ENSURE_ZERO_OFFSET, [away], placed.ty)
        return [bound(away, placed), bound(binding.var, settled)]

    def result(
        self, binding: BindingNode, shape: Node, where: Sequence[Node], size: Expr
    ) -> list[relax.Binding]:
        """A result in memory for declared bounds: a view of as many bytes.

        RewriteCUDAGraph would make a storage of constant size that of the graph, also where the result leaves
        as a view or in a tuple, and the next call would write over it.  It takes no R.builtin.alloc_tensor.
        """
        extent = relax.ShapeExpr([self.prims(size)])
        kind = relax.TensorType(extent, "uint8")
        memory = typed_var(f"{binding.var.name}_memory", kind)
        made = typed_call(BUILTIN_ALLOC, [extent, BYTE, *where], kind, [kind])
        return [bound(memory, made), bound_view(binding.var, memory, shape)]


def emit_module(
    module: tvm.IRModule,
    analyses: Mapping[str, FunctionAnalysis],
    plans: Mapping[str, Plan],
    *,
    guards: GuardKind = "assert",
    addresses: bool = True,
    keeps_reshapes: bool = False,
    given: bool = False,
    results: Mapping[str, int] = {},
) -> tvm.IRModule:
    """`module` with `plans` written into it; `plans` holds callees before their callers.

    `analyses` are those of the program that was extracted from `module`, with handles.  `addresses`: the
    target brings a tensor to offset zero without copying it; where it does not, none that needs that may lie
    elsewhere.  `keeps_reshapes`: R.reshape may stand, for LegalizeOps will not run again.  `given`: callers
    give public functions their arenas; `results`: the last parameters of functions, so many, are theirs.
    """
    writer = _ModuleWriter(module, analyses, guards, addresses, keeps_reshapes)
    for name, plan in plans.items():
        public = given and analyses[name].cfg.function.takes_memory
        count = results.get(name, 0)
        if public or count or plan.guards or any(arena.placements for arena in plan.arenas):
            writer.function(name, plan, given=public, results=count)
    return writer.finished()


def function_texts(module: tvm.IRModule, names: Collection[str]) -> dict[str, str]:
    """Each of these functions as TVM prints it, by itself with the kernels that are guards."""
    every = {v.name_hint: (v, f) for v, f in module.functions.items()}
    guards = {v: f for v, f in every.values() if "tirx.is_host_func" in (f.attrs or {})}
    alone = {name: tvm.IRModule({v: f, **guards}) for name, (v, f) in every.items() if name in names}
    return {name: str(one.script(show_meta=False)) for name, one in alone.items()}


class _ModuleWriter:
    """Writes one module; the arguments are those of `emit_module`.

    `offset_parameters` are the positions at which kernels will be given tensors at an offset.
    """

    def __init__(
        self,
        module: tvm.IRModule,
        analyses: Mapping[str, FunctionAnalysis],
        kind: GuardKind,
        addresses: bool,
        keeps_reshapes: bool,
    ) -> None:
        self.module, self.analyses, self.kind = module, analyses, kind
        self.addresses, self.keeps_reshapes = addresses, keeps_reshapes
        self.globals: dict[str, GlobalVar] = {v.name_hint: v for v in module.get_global_vars()}
        self.positions = offset_kernels(module)
        self.draft = ModuleDraft(module)
        self.offset_parameters: dict[str, frozenset[int]] = {}

    def function(self, name: str, plan: Plan, *, given: bool, results: int) -> None:
        """Write the plan of one function into it, whose caller may have `given` its arenas, and `results`."""
        variable, cfg = self.globals[name], self.analyses[name].cfg
        function = self.module[variable]
        # what may lie elsewhere than at the start of its storage
        placed = (p for arena in plan.arenas for p in arena.placements if p.offset.as_constant != 0)
        away = {p.buffer.var for p in placed if p.buffer.var is not None}
        found = offset_uses(self.analyses[name], self.positions, away)
        for kernel, positions in found.offset_parameters.items():
            self.offset_parameters[kernel] = self.offset_parameters.get(kernel, frozenset()) | positions
        fallback = self.kind == "fallback" and any(g.defined_by is None for g in plan.guards)
        writer = _FunctionWriter(
            module=self,
            plan=plan,
            cfg=cfg,
            function=function,
            needs_zero_offset=found.needs_zero_offset,
            unplanned=self.unplanned(name, plan, function) if fallback else None,
            given=CallerMemory(
                module=self.module, plan=plan, seen=cfg.function, takes_arenas=given, results=results
            ),
        )
        try:
            self.draft.functions[variable] = writer.planned()
            if writer.given is not None:
                writer.given.tell_bytes(self.draft, self.kind, function)
        except NotASizeError as error:
            raise PlanRefusedError(f"the plan for `{name}` cannot be written: {error}") from None

    def unplanned(self, name: str, plan: Plan, function: relax.Function) -> GlobalVar:
        """Add what runs where a guard fails: the function as it was, its match_casts checked alike."""
        bare, cfg = replace(plan, arenas=(), guards=()), self.analyses[name].cfg
        bare_copy = copied(_FunctionWriter(module=self, plan=bare, cfg=cfg, function=function).planned())
        if bare_copy is None:
            problem = f"TVM cannot copy `{name}` for a fallback: a type in it holds a call (if_then_else)"
            raise PlanRefusedError(f"{problem}; choose other guards")
        return self.draft.add(f"{name}_unplanned", bare_copy)

    def finished(self) -> tvm.IRModule:
        """The module, with the kernels that were found wanting."""
        for name, positions in self.offset_parameters.items():
            variable = self.globals[name]
            self.draft.functions[variable] = with_offsets(self.module[variable], positions)
        return self.draft.finished()


_DATA, _OFFSET, _VALUE = 1, 8, 15  # of TVM's TVMStructFieldKind
_MISPLACED = f"does not begin at a multiple of {ALIGNMENT}, with a byte_offset of 0"
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenArena:
    """A parameter `var` for an arena of `size` bytes; as many as `extent` says are given."""

    size: Expr
    var: VarNode
    extent: VarNode


class _HandedOver(NamedTuple):
    """Memory that a caller hands over, and its bytes: 1 where they are not known."""

    name: str
    value: Node
    nbytes: Expr
    device: int


@dataclass(slots=True, kw_only=True)
class CallerMemory:
    """The memory that the caller of one function gives: arenas by device and scope, at least one where it
    `takes_arenas`, be it empty; and its last parameters, as many as `results` says.
    """

    module: tvm.IRModule
    plan: Plan
    seen: ir.Function
    takes_arenas: bool
    results: int
    places: Mapping[tuple[int, str], GivenArena] = field(init=False)

    def __post_init__(self) -> None:
        sizes = {(a.device, a.scope): a.size for a in self.plan.arenas if a.given}
        if self.takes_arenas and not sizes:
            sizes = {(0, "global"): ZERO}
        devices = elements(self.module.global_infos.get("vdevice", ()))
        found, taken = {}, {p.name for p in self.seen.params}
        for index, (place, size) in enumerate(sizes.items()):
            name = free_name(f"arena{_suffix(index)}", taken, lambda n: "_" * n)
            extent = tirx.Var(f"{name}_bytes", "int64")
            device = devices[place[0]] if place[0] < len(devices) else None
            kind = relax.TensorType(relax.ShapeExpr([extent]), "uint8", device)
            found[place] = GivenArena(size=size, var=typed_var(name, kind), extent=extent)
        self.places = found

    @property
    def params(self) -> Sequence[VarNode]:
        """The parameters."""
        return [one.var for one in self.places.values()]

    def checks(
        self, guards: GuardWriter, draft: ModuleDraft, function: relax.Function
    ) -> Iterator[relax.Binding]:
        """The checks that arenas are large enough, that what is given begins at a multiple of ALIGNMENT, and
        that it overlaps nothing else that a caller hands over.
        """
        used = {place: one for place, one in self.places.items() if one.size != ZERO}
        for one in used.values():
            yield guards.arena(one.size, one.extent)
        count = len(self.seen.params) - self.results
        given, _ = self.stretches(guards, function, range(count, len(self.seen.params)))
        for place, one in used.items():
            given.append(_HandedOver(one.var.name, one.var, one.size, place[0]))
        if not given:
            return
        inputs, fields = self.stretches(guards, function, range(count))
        yield from fields
        for device in dict.fromkeys(one.device for one in given):
            here, others = ([one for one in some if one.device == device] for some in (given, inputs))
            symbols = sorted(frozenset().union(*(one.nbytes.symbols for one in (*here, *others))))
            kernel = _memory_check(self.plan.function, here, others, symbols)
            added = draft.add(f"{self.plan.function}_memory", kernel, public=True)
            arguments = [one.value for one in (*here, *others)]
            arguments += [guards.prims.variables[name] for name in symbols]
            yield effect(relax.ExternFunc(added.name_hint), arguments, "guard")

    def stretches(
        self, guards: GuardWriter, function: relax.Function, numbers: Iterable[int]
    ) -> tuple[list[_HandedOver], list[relax.Binding]]:
        """The tensors in some parameters, and bindings that take them out of tuples."""
        found, bindings = list[_HandedOver](), list[relax.Binding]()
        for number in numbers:
            seen, param = self.seen.params[number], function.params[number]
            for path, kind in type_leaves(seen.type):
                if not isinstance(kind, TensorType):
                    continue
                value, ty = param, param.ty
                for index in path:
                    ty = ty.fields[index]
                    part = typed_var("part", ty)
                    bindings.append(bound(part, relax.TupleGetItem(value, index)))
                    value = part
                nbytes = ONE if kind.nbytes is None else kind.nbytes
                nbytes = nbytes if nbytes.symbols <= guards.prims.variables.keys() else ONE
                found.append(_HandedOver(seen.name, value, nbytes, kind.device))
        return found, bindings

    def tell_bytes(self, draft: ModuleDraft, kind: GuardKind, function: relax.Function) -> None:
        """Add the functions that tell their bytes, for the symbols in the order in which the parameters of
        `function` name them first; they raise at shapes at which it does.
        """
        name, entry = self.plan.function, [g for g in self.plan.guards if g.defined_by is None]
        known: dict[int, str] = {v.__chandle__(): symbol for symbol, v in self.seen.variables.items()}
        params = elements(function.params)
        named = (v.__chandle__() for p in params for v in (p, *relax.analysis.tir_vars_in_type(p.ty)))
        names = list(dict.fromkeys(known[handle] for handle in named if handle in known))
        for index, one in enumerate(self.places.values()):
            symbols, size = {name: tirx.Var(name, "int64") for name in names}, one.size
            prims = PrimBuilder(symbols)
            guards = GuardWriter(kind=kind, function=name, prims=prims)
            checks = [] if kind == "fallback" else list(guards.each(entry))
            if kind == "fallback":
                size = select(conjunction(g.check for g in entry), size, ZERO)
            told = typed_var("nbytes", INDEX)
            block = relax.BindingBlock([*checks, bound(told, prims(size))])
            shape = typed_var("symbols", relax.ShapeType(list(symbols.values())))
            body = relax.BlockBuilder().normalize(relax.SeqExpr([block], told))
            made = relax.Function([shape], body, INDEX, is_pure=True).with_attr("relax.force_pure", True)
            draft.add_exactly(f"{name}_bytes{_suffix(index)}", made)


def _suffix(index: int) -> str:
    return f"_{index}" if index else ""


def _memory_check(
    function: str, given: Sequence[_HandedOver], inputs: Sequence[_HandedOver], symbols: Sequence[str]
) -> tirx.PrimFunc:
    """The kernel that raises unless each tensor that is `given`, and has bytes, begins at a multiple of
    ALIGNMENT, at offset 0, and shares no byte with another.

    It fills a table: where each tensor begins, then its bytes, -1 if it overlaps one that is given before.  A
    pointer is no number for TVM's compiler, but a slot for arguments may hold either.
    """
    tensors = [*given, *inputs]
    count, scalars = len(tensors), {name: tirx.Var(name, "int64") for name in symbols}
    prims, handles = PrimBuilder(scalars), [tirx.Var(f"tensor{i}", "handle") for i in range(count)]
    table, tensor = tirx.Var("table", "handle"), tirx.Var("tensor", "handle")
    i, j, k = (tirx.Var(name, "int32") for name in "ijk")

    def get(source: VarNode, index: Any, kind: int, dtype: str) -> Any:
        return tirx.call_intrin(dtype, "tirx.tvm_struct_get", source, index, kind)

    def put(index: Any, value: Node) -> Node:
        return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_struct_set", table, index, _VALUE, value))

    def begin(index: Any) -> Any:
        return get(table, index, _VALUE, "int64")

    def nbytes(index: Any) -> Any:
        return begin(count + index)

    def claim(holds: Node, complaint: str) -> Node:
        return tirx.AssertStmt(holds, StringImm("ValueError"), [StringImm(f"{function}: {complaint}")])

    def each(index: VarNode, end: Any, body: Node) -> Node:
        return tirx.For(index, 0, end, tirx.ForKind.SERIAL, body)

    body = [tirx.Bind(table, tirx.call_intrin("handle", "tirx.tvm_stack_alloca", "tvm_ffi_any", 2 * count))]
    for number, one in enumerate(tensors):
        body += put(number, handles[number]), put(count + number, prims(one.nbytes))
    offset = tirx.Cast("int64", get(tensor, 0, _OFFSET, "uint64"))
    taken = tirx.Bind(tensor, get(table, k, _VALUE, "handle"))
    address = put(k, get(tensor, 0, _DATA, "handle")), put(k, begin(k) + offset)
    body.append(each(k, count, tirx.SeqStmt([taken, *address])))
    empty = tirx.Or(nbytes(i) == 0, nbytes(j) == 0)
    apart = tirx.Or(begin(i) + nbytes(i) <= begin(j), begin(j) + nbytes(j) <= begin(i))
    mark = tirx.IfThenElse(tirx.Not(tirx.Or(empty, apart)), put(count + i, tirx.IntImm("int64", -1)), None)
    body.append(each(i, count, each(j, tirx.min(i, len(given)), mark)))
    for number, one in enumerate(given):
        in_place = get(handles[number], 0, _OFFSET, "uint64") == tirx.IntImm("uint64", 0)
        aligned = tirx.FloorMod(begin(number), tirx.IntImm("int64", ALIGNMENT)) == 0
        holds = tirx.Or(nbytes(number) == 0, tirx.And(aligned, in_place))
        body.append(claim(holds, f"`{one.name}` {_MISPLACED}"))
    for number, one in enumerate(tensors[1:], start=1):
        names = [f"`{other.name}`" for other in given[:number]]
        what = " or ".join(names) if len(names) <= _MOST_NAMES else "what is given for results"
        body.append(claim(nbytes(number) >= 0, f"`{one.name}` overlaps {what}"))
    params = [*handles, *scalars.values()]
    return tirx.PrimFunc(params, tirx.SeqStmt(body)).with_attr("tirx.is_host_func", True)

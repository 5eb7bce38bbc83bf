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

import tvm
import tvm_ffi
from tvm import DataType, relax
from tvm.ir import Call, GenericConst, GlobalVar, Op, StringImm

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Guard, Plan
from symalloc.planner.planned_program import first_uses, taken_apart
from symalloc.planner.planner_options import GuardKind
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.operands import extent_pairs, type_of
from symalloc.relax.emit.caller_arena import CallerMemory
from symalloc.relax.emit.kernel_offsets import EmissionError, offset_kernels, offset_uses, with_offsets
from symalloc.relax.emit.prim_builder import GuardWriter, PrimBuilder, uncaptured
from symalloc.relax.extract.tir_to_expr import NotASizeError
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    VarNode,
    bound,
    elements,
    typed_call,
    typed_var,
)
from symalloc.relax.rewrite import BindingRewriter, ModuleDraft, by_binding, copied, forced_pure, with_body
from symalloc.size.condition import conjunction, eq
from symalloc.size.expr import Expr

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
    places: dict[ir.Var, tuple[int, Expr]] = field(default_factory=dict)
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
        for index, arena in enumerate(self.plan.arenas):
            for placement in arena.placements:
                if placement.buffer.var is not None:
                    self.places[placement.buffer.var] = index, placement.offset
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
        return written.with_attr(ir.PLAN_CONDITION, str(conjunction(g.check for g in self.plan.guards)))

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

"""Writes a plan into a Relax function: a guard and arenas, and for each planned tensor its place in one.

The function must stand where StaticPlanBlockMemory stands: after CallTIRRewrite, no dataflow blocks, in
normal form.  Each planned `t = R.builtin.alloc_tensor(shape, dtype)` becomes
`t = R.memory.alloc_tensor(storage, offset, shape, dtype)`.  Where a user of `t` takes no offset,
`R.memory.ensure_zero_offset` stands in between; at multiples of 64 no bytes are copied.  What is not planned
is left for LowerAllocTensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import DataType, relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar, Op
from tvm.relax.op import memory

from symalloc.planner.memory_plan import Arena, Guard, Placement, Plan
from symalloc.program.model import (
    AllocFresh,
    Block,
    CallFunction,
    Function,
    If,
    Instruction,
    MatchCast,
    Var,
    View,
)
from symalloc.program.operands import type_of
from symalloc.program.types import ShapeType, TensorType, TupleType
from symalloc.relax.emit.first_uses import first_uses
from symalloc.relax.emit.guards import Check
from symalloc.relax.emit.symbols import paired
from symalloc.relax.emit.tir_emit import PrimBuilder
from symalloc.relax.ir_types import Node, TypeNode, VarNode, elements
from symalloc.size.atoms import Select
from symalloc.size.condition import eq
from symalloc.size.expr import Expr

# what LowerRuntimeBuiltin makes of R.memory.view.  That operator's type inference compares the view with
# the arena by TVM's analyser: up to 50 ms a tensor, and again in every pass that visits it
VIEW = "runtime.TVMTensorCreateView"

RESHAPE = "vm.builtin.reshape"  # what LowerRuntimeBuiltin makes of R.reshape

_RESHAPE = Op.get("relax.reshape")
_BUILTIN_ALLOC = Op.get("relax.builtin.alloc_tensor")
_ALLOC_TENSOR = Op.get("relax.memory.alloc_tensor")
_VIEW = relax.ExternFunc(VIEW)
_BYTE = GenericConst(DataType("uint8"), relax.AnyType())


class EmissionError(Exception):
    """The plan and the function to write it into do not belong together: a fault of ours, not of the
    user's.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a function's emission needs to know of the module.

    `settled`: allocations that some user wants at offset zero.  `check` writes guards.  `callees` holds, by
    name, the variant of a function that works in its caller's arenas.  `arenas` are the parameters that
    bring the arenas reserved at entry where the function is such a variant itself, in the plan's order.
    `unplanned` is the function that runs where a guard fails, None where a guard raises.
    """

    settled: Collection[Var] = ()
    check: Check
    callees: Mapping[str, GlobalVar] = field(default_factory=dict)
    arenas: Sequence[Node] = ()
    unplanned: GlobalVar | None = None


def emit_function(
    function: relax.Function, seen: Function, plan: Plan, variables: Mapping[str, Node], around: Surroundings
) -> relax.Function:
    """`function` with `plan` written into it, and the checks that its match_casts need.

    `seen` is the extracted form that the plan was made from; `variables` holds the function's symbolic
    variables by the names that `seen` gives them.  Raises EmissionError where `function` is another
    function than `seen`.
    """
    writer = _Writer(plan=plan, prims=PrimBuilder(dict(variables)), around=around)
    body = writer.whole(function, seen)
    rewritten = relax.Function(
        [*function.params, *around.arenas],
        body,
        function.ret_ty,
        is_pure=function.is_pure,
        attrs=function.attrs,
        span=function.span,
    )
    # a guard is a call of a packed function, which TVM takes for impure
    return rewritten.with_attr("relax.force_pure", True) if function.is_pure else rewritten


@dataclass(frozen=True, slots=True)
class _Home:
    """An arena in the function: a storage of its own, or the tensor that the caller brings."""

    var: VarNode
    brought: bool = False

    def place(self, offset: Node, shape: Node, dtype: Node, device: Node, type_: TypeNode) -> Node:
        """The call that gives the tensor of `type_` at `offset` bytes; it says so, for TVM to infer
        nothing.
        """
        if self.brought:
            return Call(_VIEW, [self.var, shape, dtype, offset], ty_args=[type_], ret_ty=type_)
        return Call(_ALLOC_TENSOR, [self.var, offset, shape, dtype, device], ret_ty=type_)


@dataclass(slots=True, kw_only=True)
class _Writer:
    plan: Plan
    prims: PrimBuilder
    around: Surroundings
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)
    homes: dict[int, _Home] = field(default_factory=dict)
    bound: dict[Expr, Node] = field(default_factory=dict)
    wanted: Counter[Expr] = field(init=False)
    places: Mapping[Var, list[tuple[int, Placement]]] = field(init=False)
    due: Mapping[Var, Sequence[int]] = field(default_factory=dict)
    late: frozenset[Var] = field(init=False)

    def __post_init__(self) -> None:
        places: dict[Var, list[tuple[int, Placement]]] = {}
        for index, arena in enumerate(self.plan.arenas):
            for placement in arena.placements:
                if placement.buffer.var is not None:
                    places.setdefault(placement.buffer.var, []).append((index, placement))
        self.places = places
        self.wanted = Counter(p.offset for arena in self.plan.arenas for p in arena.placements)
        points = (*(a.after for a in self.plan.arenas), *(g.after for g in self.plan.guards))
        self.late = frozenset(var for var in points if var is not None)

    def bind(self, name: str, value: Node) -> relax.VarBinding:
        value = self.builder.normalize(value)
        return relax.VarBinding(relax.Var(name, value.ty), value)

    # -- the function ---------------------------------------------------------------------------------------

    def whole(self, function: relax.Function, seen: Function) -> relax.SeqExpr:
        """The new body."""
        guards = [g for g in self.plan.guards if g.after is None]
        if self.around.arenas:
            self.brought()
        else:
            self.due = first_uses(self.plan, seen.body)
        if self.around.unplanned is None or not guards:
            return self.sequence(function.body, seen.body, list(self.guards(guards)))
        planned = self.sequence(function.body, seen.body)
        return self.either(self.around.check.condition(guards, self.prims), planned, function)

    def either(self, condition: Node, planned: relax.SeqExpr, function: relax.Function) -> relax.SeqExpr:
        """An If whose else-branch calls the function as it was."""
        call = self.bind("unplanned", Call(self.around.unplanned, list(function.params)))
        fallback = relax.SeqExpr([relax.BindingBlock([call])], call.var)
        chosen = relax.If(condition, planned, self.builder.normalize(fallback))
        result = self.bind("result", chosen)
        return self.builder.normalize(relax.SeqExpr([relax.BindingBlock([result])], result.var))

    def guards(self, guards: Sequence[Guard]) -> Iterator[relax.VarBinding]:
        """One check for all `guards`."""
        call = self.around.check.call(guards, self.plan.function, self.prims) if guards else None
        if call is not None:
            yield self.bind("guard", call)

    def brought(self) -> None:
        """Notes the arenas that a caller brings."""
        entry = (i for i, arena in enumerate(self.plan.arenas) if arena.after is None and arena.placements)
        self.homes.update(
            (i, _Home(var, brought=True)) for i, var in zip(entry, self.around.arenas, strict=True)
        )

    def arenas(self, indices: Iterable[int]) -> Iterator[relax.VarBinding]:
        """Reserves these arenas."""
        for index in indices:
            storage = self.reserve(self.plan.arenas[index])
            self.homes[index] = _Home(storage.var)
            yield storage

    def behind(self, var: Var) -> Iterator[relax.VarBinding]:
        """The guards and arenas that stand behind `var`."""
        yield from self.guards([g for g in self.plan.guards if g.after is var])
        late = (i for i, arena in enumerate(self.plan.arenas) if arena.after is var and arena.placements)
        yield from self.arenas(late)

    def reserve(self, arena: Arena) -> relax.VarBinding:
        extent = relax.ShapeExpr([self.prims(arena.size)])
        return self.bind("arena", memory.alloc_storage(extent, arena.device, arena.scope, "uint8"))

    def offset(self, offset: Expr, out: list[relax.Binding]) -> Node:
        """`offset` as a scalar; one that several tensors have is bound where it first stands.

        So is a choice: `if_then_else` is a call, which normal form lets stand as an argument nowhere.
        """
        if offset in self.bound:
            return self.bound[offset]
        chosen = offset.as_atom
        if isinstance(chosen, Select):
            value = self.choice(chosen, out)
        elif offset.as_constant is not None or self.wanted[offset] < 2:
            return self.prims(offset)
        else:
            value = self.prims(offset)
        variable = relax.Var("offset", value.ty)
        out.append(relax.VarBinding(variable, value))
        self.bound[offset] = variable
        return variable

    def choice(self, chosen: Select, out: list[relax.Binding]) -> Node:
        then, otherwise = self.offset(chosen.then, out), self.offset(chosen.otherwise, out)
        return tirx.if_then_else(self.prims.condition(chosen.condition), then, otherwise)

    # -- the body ------------------------------------------------------------------------------------------

    def sequence(
        self, seq: relax.SeqExpr, seen: Block, entry: Sequence[relax.VarBinding] = ()
    ) -> relax.SeqExpr:
        """`seq` with the plan written into it; its bindings stand one to one for the instructions of
        `seen`.
        """
        instructions = iter(seen.instructions)
        blocks = [self.block(b, instructions) for b in seq.blocks]
        if next(instructions, None) is not None:
            raise EmissionError(f"`{self.plan.function}` holds fewer bindings than were planned")
        if entry:
            blocks.insert(0, relax.BindingBlock(list(entry)))
        return self.builder.normalize(relax.SeqExpr(blocks, seq.body))

    def block(self, block: relax.BindingBlock, instructions: Iterator[Instruction]) -> relax.BindingBlock:
        if isinstance(block, relax.DataflowBlock):
            raise EmissionError("a dataflow block where memory is planned; run ToNonDataflow first")
        written: list[relax.Binding] = []
        for binding in elements(block.bindings):
            instruction = next(instructions, None)
            if instruction is None:
                raise EmissionError(f"`{self.plan.function}` holds more bindings than were planned")
            written += self.arenas(self.due.get(instruction.var, ()))
            written += self.binding(binding, instruction)
            if instruction.var in self.late:
                written += self.behind(instruction.var)
        return relax.BindingBlock(written)

    def binding(self, binding: relax.Binding, instruction: Instruction) -> list[relax.Binding]:
        match instruction:
            case AllocFresh():
                return self.allocation(binding, instruction)
            case If():
                return [self.branches(binding, instruction)]
            case MatchCast():
                return [*self.cast(binding, instruction), binding]
            case View(kind="reshape") if getattr(binding.value, "op", None) == _RESHAPE:
                return [self.reshape(binding)]
            case CallFunction(var=var, name=name) if var in self.places:
                return self.callee(binding, self.places[var], self.around.callees[name])
        return [binding]

    def reshape(self, binding: relax.VarBinding) -> relax.VarBinding:
        """A view as the packed call it becomes: LegalizeOps, run again, would make it a kernel without
        offsets.
        """
        source, shape = elements(binding.value.args)
        call = Call(relax.ExternFunc(RESHAPE), [source, shape], ty_args=[binding.var.ty])
        return relax.VarBinding(binding.var, self.builder.normalize(call))

    def cast(self, binding: relax.MatchCast, seen: MatchCast) -> Iterator[relax.VarBinding]:
        """Takes up the symbols that a cast binds, and checks what it says of those that were known.

        KillAfterLastUse drops such a cast with its check where it knows the extents of both sides.
        """
        self.prims.define(paired(binding.ty, seen.target))
        claims = [eq(old, new) for old, new in _extents(seen) if new.symbols.isdisjoint(seen.defines)]
        open_claims = [c for c in claims if c.as_bool is not True]
        if open_claims:
            call = self.around.check.cast(open_claims, self.plan.function, self.prims)
            yield self.bind("cast_guard", call)

    def branches(self, binding: relax.VarBinding, seen: If) -> relax.VarBinding:
        value = binding.value
        if not isinstance(value, relax.If):
            raise EmissionError(f"`{self.plan.function}` does not branch where it was planned to")
        branches = [
            self.branch(value.true_branch, seen.then),
            self.branch(value.false_branch, seen.otherwise),
        ]
        chosen = relax.If(value.cond, *branches, value.span)
        return relax.VarBinding(binding.var, self.builder.normalize(chosen))

    def branch(self, seq: relax.SeqExpr, seen: Block) -> relax.SeqExpr:
        """One side of an If: what it binds is not known outside of it."""
        outside = self.bound
        self.bound = dict(outside)
        written = self.sequence(seq, seen)
        self.bound = outside
        return written

    def allocation(self, binding: relax.VarBinding, seen: AllocFresh) -> list[relax.Binding]:
        value, places = binding.value, self.places.get(seen.var, ())
        if not isinstance(value, Call) or value.op != _BUILTIN_ALLOC:
            raise EmissionError(f"`{self.plan.function}` allocates other tensors than were planned")
        if not places:
            return [binding]
        ((index, placement),) = places
        shape, dtype, device, *_ = elements(value.args)
        written: list[relax.Binding] = []
        offset = self.offset(placement.offset, written)
        placed = self.homes[index].place(offset, shape, dtype, device, value.ty)
        if placement.offset.as_constant == 0 or seen.var not in self.around.settled:
            return [*written, relax.VarBinding(binding.var, placed)]
        return [*written, *self.settle(binding.var, placed)]

    def settle(self, var: VarNode, placed: Node) -> Iterator[relax.VarBinding]:
        """`var` bound to the tensor that `placed` makes, with its offset folded into its data pointer."""
        away = relax.VarBinding(relax.Var(f"{var.name}_placed", placed.ty), placed)
        yield away
        yield relax.VarBinding(var, self.builder.normalize(memory.ensure_zero_offset(away.var)))

    def callee(
        self, binding: relax.VarBinding, places: Sequence[tuple[int, Placement]], variant: GlobalVar
    ) -> list[relax.Binding]:
        """A call of `variant` with a tensor of each arena that it works in."""
        written: list[relax.Binding] = []
        for index, placement in places:
            extent = relax.ShapeExpr([self.prims(placement.buffer.nbytes)])
            type_ = relax.TensorType(extent, "uint8")
            device = relax.prim_value(self.plan.arenas[index].device)
            placed = self.homes[index].place(self.prims(placement.offset), extent, _BYTE, device, type_)
            written += self.settle(relax.Var(f"{placement.buffer.callee}_arena", type_), placed)
        brought = [b.var for b in written[1::2]]
        value = binding.value
        call = Call(variant, [*value.args, *brought], value.attrs, value.ty_args, value.span)
        return [*written, relax.VarBinding(binding.var, self.builder.normalize(call))]


def _extents(cast: MatchCast) -> Iterator[tuple[Expr, Expr]]:
    """The extents of a cast's source, where they are known, with those that it is cast to."""
    pending = [(type_of(cast.source), cast.target)]
    while pending:
        match pending.pop():
            case TensorType(shape=tuple(have)), TensorType(shape=tuple(want)) if len(have) == len(want):
                yield from zip(have, want, strict=True)
            case ShapeType(values=tuple(have)), ShapeType(values=tuple(want)) if len(have) == len(want):
                yield from zip(have, want, strict=True)
            case TupleType(fields=have), TupleType(fields=want) if len(have) == len(want):
                pending.extend(zip(have, want, strict=True))

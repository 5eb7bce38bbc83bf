"""Writes a plan into a Relax function: a guard and arenas, and for each planned tensor its place in one.

The function must stand where StaticPlanBlockMemory stands: after CallTIRRewrite, no dataflow blocks, in
normal form.  Each planned `t = R.builtin.alloc_tensor(shape, dtype)` becomes
`t = R.memory.alloc_tensor(storage, offset, shape, dtype)`.  Where a user of `t` takes no offset,
`R.memory.ensure_zero_offset` stands in between; at multiples of 64 no bytes are copied.  What is not planned
is left for LowerAllocTensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import DataType, relax
from tvm.ir import Call, GenericConst, GlobalVar, Op
from tvm.relax.op import memory

from symalloc.plan.model import Arena, Guard, Placement, Plan
from symalloc.program.model import AllocFresh, Block, CallFunction, Function, If, Instruction, MatchCast, Var
from symalloc.relax.emit_guards import Check
from symalloc.relax.symbols import paired
from symalloc.relax.tir_emit import PrimBuilder

__all__ = ["EmissionError", "Surroundings", "emit_function"]

# what LowerRuntimeBuiltin makes of R.memory.view.  That operator's type inference compares the view with
# the arena by TVM's analyser: up to 50 ms a tensor, and again in every pass that visits it
VIEW = "runtime.TVMTensorCreateView"

_BUILTIN_ALLOC = Op.get("relax.builtin.alloc_tensor")
_ALLOC_TENSOR = Op.get("relax.memory.alloc_tensor")
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
    arenas: Sequence[Any] = ()
    unplanned: GlobalVar | None = None


def emit_function(
    function: relax.Function, seen: Function, plan: Plan, variables: Mapping[str, Any], around: Surroundings
) -> relax.Function:
    """`function` with `plan` written into it.

    `seen` is the extracted form that the plan was made from; `variables` holds the function's symbolic
    variables by the names that `seen` gives them.  Raises EmissionError where `function` is another
    function than `seen`.
    """
    if not any(arena.placements for arena in plan.arenas):
        return function
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

    var: Any
    brought: bool = False

    def place(self, offset: Any, shape: Any, dtype: Any, device: Any, type_: Any) -> Any:
        """The call that gives the tensor of `type_` at `offset` bytes."""
        if self.brought:
            return Call(relax.ExternFunc(VIEW), [self.var, shape, dtype, offset], ty_args=[type_])
        return Call(_ALLOC_TENSOR, [self.var, offset, shape, dtype, device])


@dataclass(slots=True, kw_only=True)
class _Writer:
    plan: Plan
    prims: PrimBuilder
    around: Surroundings
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)
    homes: dict[int, _Home] = field(default_factory=dict)
    places: Mapping[Var, list[tuple[int, Placement]]] = field(init=False)
    late: frozenset[Var] = field(init=False)

    def __post_init__(self) -> None:
        places: dict[Var, list[tuple[int, Placement]]] = {}
        for index, arena in enumerate(self.plan.arenas):
            for placement in arena.placements:
                if placement.buffer.var is not None:
                    places.setdefault(placement.buffer.var, []).append((index, placement))
        self.places = places
        points = (*(a.after for a in self.plan.arenas), *(g.after for g in self.plan.guards))
        self.late = frozenset(var for var in points if var is not None)

    def bind(self, name: str, value: Any) -> relax.VarBinding:
        value = self.builder.normalize(value)
        return relax.VarBinding(relax.Var(name, value.ty), value)

    # -- the function ---------------------------------------------------------------------------------------

    def whole(self, function: relax.Function, seen: Function) -> relax.SeqExpr:
        """The new body."""
        guards = [g for g in self.plan.guards if g.after is None]
        if self.around.unplanned is None or not guards:
            entry = [*self.guards(guards), *self.arenas(None)]
            return self.sequence(function.body, seen.body, entry)
        planned = self.sequence(function.body, seen.body, list(self.arenas(None)))
        return self.either(self.around.check.condition(guards, self.prims), planned, function)

    def either(self, condition: Any, planned: relax.SeqExpr, function: relax.Function) -> relax.SeqExpr:
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

    def arenas(self, after: Var | None) -> Iterator[relax.VarBinding]:
        """Reserves the arenas that stand behind `after`; those that a caller brings are only noted."""
        brought = iter(self.around.arenas)
        for index, arena in enumerate(self.plan.arenas):
            if arena.after is not after or not arena.placements:
                continue
            if after is None and self.around.arenas:
                self.homes[index] = _Home(next(brought), brought=True)
                continue
            storage = self.reserve(arena)
            self.homes[index] = _Home(storage.var)
            yield storage

    def reserve(self, arena: Arena) -> relax.VarBinding:
        extent = relax.ShapeExpr([self.prims(arena.size)])
        return self.bind("arena", memory.alloc_storage(extent, arena.device, arena.scope, "uint8"))

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
        for binding in block.bindings:
            instruction = next(instructions, None)
            if instruction is None:
                raise EmissionError(f"`{self.plan.function}` holds more bindings than were planned")
            written += self.binding(binding, instruction)
            if instruction.var in self.late:
                written += self.guards([g for g in self.plan.guards if g.after is instruction.var])
                written += self.arenas(instruction.var)
        return relax.BindingBlock(written)

    def binding(self, binding: relax.Binding, instruction: Instruction) -> list[relax.Binding]:
        match instruction:
            case AllocFresh(var=var):
                return self.allocation(binding, self.places.get(var, ()), var)
            case If():
                return [self.branches(binding, instruction)]
            case MatchCast(target=target):
                self.prims.define(paired(binding.ty, target))
            case CallFunction(var=var, name=name) if var in self.places:
                return self.callee(binding, self.places[var], self.around.callees[name])
        return [binding]

    def branches(self, binding: relax.VarBinding, seen: If) -> relax.VarBinding:
        value = binding.value
        if not isinstance(value, relax.If):
            raise EmissionError(f"`{self.plan.function}` does not branch where it was planned to")
        branch = relax.If(
            value.cond,
            self.sequence(value.true_branch, seen.then),
            self.sequence(value.false_branch, seen.otherwise),
            value.span,
        )
        return relax.VarBinding(binding.var, self.builder.normalize(branch))

    def allocation(
        self, binding: relax.VarBinding, places: Sequence[tuple[int, Placement]], var: Var
    ) -> list[relax.Binding]:
        value = binding.value
        if not isinstance(value, Call) or value.op != _BUILTIN_ALLOC:
            raise EmissionError(f"`{self.plan.function}` allocates other tensors than were planned")
        if not places:
            return [binding]
        ((index, placement),) = places
        shape, dtype, device, *_ = value.args
        home, offset = self.homes[index], self.prims(placement.offset)
        placed = home.place(offset, shape, dtype, device, binding.var.ty)
        at_zero = placement.offset.as_constant == 0
        if at_zero or var not in self.around.settled:
            return [relax.VarBinding(binding.var, self.builder.normalize(placed))]
        return list(self.settle(binding.var, placed))

    def settle(self, var: Any, placed: Any) -> Iterator[relax.VarBinding]:
        """`var` bound to the tensor that `placed` makes, with its offset folded into its data pointer."""
        away = self.bind(f"{var.name}_placed", placed)
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

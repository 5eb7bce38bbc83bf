"""A program with its plans written into it: what runs, as far as memory goes, before TVM sees any of it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from symalloc.planner.memory_plan import Arena, Placement, Plan
from symalloc.program import ir
from symalloc.program.control_flow import BlockNesting, ControlFlowGraph, control_flow_graph
from symalloc.program.types import DType, StorageType, TensorType
from symalloc.size.expr import Expr

_BYTE = DType("uint8", 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProgram:
    """`program` holds the functions as planned, and variants that work in arenas of their callers.

    `arenas` tells by the variable of a storage which arena it is, and `checked` are the Ifs that run the
    planned function where its guards hold.
    """

    program: ir.Program
    arenas: Mapping[ir.Var, Arena]
    checked: Mapping[ir.Var, bool]


def planned_program(
    program: ir.Program, plans: Mapping[str, Plan], *, fallback: bool = False
) -> PlannedProgram:
    """Write `plans` into a program; with `fallback` functions run as they were where a guard fails."""
    arenas: dict[ir.Var, Arena] = {}
    placed = [p.buffer for plan in plans.values() for arena in plan.arenas for p in arena.placements]
    lent = {buffer.callee for buffer in placed if buffer.callee is not None}
    functions, checked = dict(program.functions), dict[ir.Var, bool]()
    for name, plan in plans.items():
        function = program.functions[name]
        cfg = control_flow_graph(function)
        if name in lent:
            brought = {i: _brought(arena) for i, arena in enumerate(plan.arenas) if arena.lendable}
            body = _Writer(plan, cfg, arenas, brought).block(function.body)
            params = (*function.params, *brought.values())
            functions[variant_of(name)] = replace(function, name=variant_of(name), params=params, body=body)
        body = _Writer(plan, cfg, arenas).block(function.body)
        if fallback and any(guard.defined_by is None for guard in plan.guards):
            functions[f"{name}_unplanned"] = function
            body, branch = _either(function, body)
            checked[branch] = True
        functions[name] = replace(function, body=body)
    return PlannedProgram(program=replace(program, functions=functions), arenas=arenas, checked=checked)


def variant_of(name: str) -> str:
    """The name of the form of a function that works in arenas of its callers."""
    return f"{name}_in_arena"


def first_uses(
    plan: Plan, cfg: ControlFlowGraph, brought: Container[int] = ()
) -> Mapping[ir.Var, Sequence[int]]:
    """The arenas of `plan` (by index) but those that are `brought`, each under the instruction in front of
    which it is reserved: none is held before something lies in it, nor on a path that needs none of it.
    """
    nesting = BlockNesting(cfg)
    found: dict[ir.Var, list[int]] = {}
    for index, arena in enumerate(plan.arenas):
        members = [p.buffer.var for p in arena.placements if p.buffer.var is not None]
        if index in brought or not members:
            continue
        point = nesting.reservation(cfg.starts[var] for var in members).point
        instruction = cfg.points[point].instruction
        if instruction is not None:
            found.setdefault(instruction.var, []).append(index)
    return found


def taken_apart(cfg: ControlFlowGraph) -> frozenset[ir.Var]:
    """Return the tuples of variables, also within each other, of which nothing but fields is used.

    TVM kills no variable that nothing uses any more once it has replaced the fields by what they are: such a
    tuple would hold memory to the end of the call.
    """
    made = {one.var for _, one in cfg.of_type(ir.MakeTuple) if all(map(_plain, one.fields))}
    if not made:
        return frozenset()
    for _, one in cfg.instructions:
        if type(one) is ir.TakeField and one.source in made:
            made.add(one.var)
    for point in cfg.points:
        if type(point.instruction) is not ir.TakeField:
            made.difference_update(point.uses)
    return frozenset(made)


def _plain(item: ir.Operand) -> bool:
    """Return whether a field is a variable, or a tuple of such fields."""
    return type(item) is ir.Var or (type(item) is ir.TupleValue and all(map(_plain, item.items)))


def _brought(arena: Arena) -> ir.Var:
    return ir.Var("arena", TensorType(shape=(arena.size,), dtype=_BYTE, ndim=1, device=arena.device))


def _either(function: ir.Function, planned: ir.Block) -> tuple[ir.Block, ir.Var]:
    """An If with the planned function on one side, and a call of the other on the other; and its variable."""
    call = ir.CallFunction(
        var=ir.Var("unplanned", function.result_type),
        name=f"{function.name}_unplanned",
        arguments=function.params,
    )
    branch = ir.If(
        var=ir.Var("result", function.result_type),
        condition=None,
        test=ir.ShapeValue(()),
        then=planned,
        otherwise=ir.Block(instructions=(call,), result=call.var),
    )
    return ir.Block(instructions=(branch,), result=branch.var), branch.var


@dataclass(slots=True)
class _Writer:
    """Writes a plan into the blocks of one function; `storages` holds its arenas by index, those that are
    `brought` from the beginning.
    """

    plan: Plan
    cfg: ControlFlowGraph
    arenas: dict[ir.Var, Arena]
    storages: dict[int, ir.Var] = field(default_factory=dict)
    brought: frozenset[int] = field(init=False)
    due: Mapping[ir.Var, Sequence[int]] = field(init=False)
    places: dict[ir.Var, list[tuple[int, Placement]]] = field(default_factory=dict)
    apart: frozenset[ir.Var] = field(init=False)
    fields: dict[ir.Operand, Sequence[ir.Operand]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.brought = frozenset(self.storages)
        self.due, self.apart = first_uses(self.plan, self.cfg, self.brought), taken_apart(self.cfg)
        for index, arena in enumerate(self.plan.arenas):
            for placement in arena.placements:
                if placement.buffer.var is not None:
                    self.places.setdefault(placement.buffer.var, []).append((index, placement))

    def block(self, block: ir.Block) -> ir.Block:
        written = tuple(new for one in block.instructions for new in self.written(one))
        return replace(block, instructions=written)

    def written(self, one: ir.Instruction) -> Iterator[ir.Instruction]:
        """The instructions that stand for one, behind the arenas that are reserved in front of it."""
        for index in self.due.get(one.var, ()):
            arena = self.plan.arenas[index]
            storage = self.storages[index] = ir.Var("arena", StorageType())
            self.arenas[storage] = arena
            yield ir.AllocStorage(var=storage, size=arena.size, device=arena.device, scope=arena.scope)
        match one:
            case ir.AllocFresh(shape=shape, dtype=dtype) if one.var in self.places:
                ((index, placement),) = self.places[one.var]
                yield self.placed(one.var, index, placement, shape, dtype)
            case ir.CallFunction() if one.var in self.places:
                yield from self.call(one)
            case ir.MakeTuple(fields=items) if one.var in self.apart:
                self.fields[one.var] = items
            case ir.TakeField(source=source, index=index) if source in self.fields:
                item = self.fields[source][index]
                if isinstance(item, ir.TupleValue) and one.var in self.apart:
                    self.fields[one.var] = item.items
                else:
                    yield ir.Alias(var=one.var, source=item)
            case ir.If(then=then, otherwise=otherwise):
                yield replace(one, then=self.block(then), otherwise=self.block(otherwise))
            case _:
                yield one

    def placed(
        self, var: ir.Var, index: int, placement: Placement, shape: Sequence[Expr] | None, dtype: DType
    ) -> ir.Instruction:
        """The tensor `var` in an arena."""
        extents = None if shape is None else tuple(shape)
        storage, offset = self.storages[index], placement.offset
        if index in self.brought:
            return ir.View(var=var, source=storage, shape=extents, dtype=dtype, offset=offset, kind="view")
        return ir.AllocTensor(var=var, storage=storage, offset=offset, shape=extents, dtype=dtype)

    def call(self, call: ir.CallFunction) -> Iterator[ir.Instruction]:
        """A call of the variant of a function, which works in arenas of ours."""
        lent = []
        for index, placement in sorted(self.places[call.var], key=lambda place: place[1].buffer.lent):
            extents = (placement.buffer.nbytes,)
            var = ir.Var("lent", TensorType(shape=extents, dtype=_BYTE, ndim=1))
            yield self.placed(var, index, placement, extents, _BYTE)
            lent.append(var)
        yield replace(call, name=variant_of(call.name), arguments=(*call.arguments, *lent))

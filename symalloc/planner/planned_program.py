"""A program with its plans written into it: what runs, as far as memory goes, before TVM sees any of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from symalloc.planner.memory_plan import Arena, Plan
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph, control_flow_graph
from symalloc.program.types import StorageType
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProgram:
    """`program` holds the functions as planned.

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
    functions, checked = dict(program.functions), dict[ir.Var, bool]()
    for name, plan in plans.items():
        function = program.functions[name]
        body = written_function(plan, control_flow_graph(function), arenas).body
        if fallback and any(guard.defined_by is None for guard in plan.guards):
            functions[f"{name}_unplanned"] = function
            body, branch = _either(function, body)
            checked[branch] = True
        functions[name] = replace(function, body=body)
    return PlannedProgram(program=replace(program, functions=functions), arenas=arenas, checked=checked)


def written_function(
    plan: Plan, cfg: ControlFlowGraph, arenas: dict[ir.Var, Arena] | None = None
) -> ir.Function:
    """The function of `cfg` with a plan written into it, whose `arenas` are noted by their variables."""
    writer = _Writer(plan, cfg, {} if arenas is None else arenas)
    if not writer.places and not writer.apart:
        return cfg.function
    given = [writer.reserve(index) for index, arena in enumerate(plan.arenas) if arena.given]
    ends = (ir.Alias(var=ir.Var("_", StorageType()), source=one.var) for one in given)  # its last use
    body = writer.block(cfg.function.body)
    return replace(cfg.function, body=replace(body, instructions=(*given, *body.instructions, *ends)))


def first_uses(plan: Plan, cfg: ControlFlowGraph) -> Mapping[ir.Var, Sequence[int]]:
    """The arenas of `plan` (by index), each under the instruction in front of which it is reserved: none is
    held before something lies in it, nor on a path that needs none of it.
    """
    found: dict[ir.Var, list[int]] = {}
    for index, arena in enumerate(plan.arenas):
        members = [p.buffer.var for p in arena.placements if p.buffer.var is not None]
        if not members or arena.given:
            continue
        point = cfg.reservation(cfg.starts[var] for var in members).point
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
    """Writes a plan into the blocks of one function; `storages` holds its arenas by index."""

    plan: Plan
    cfg: ControlFlowGraph
    arenas: dict[ir.Var, Arena]
    storages: dict[int, ir.Var] = field(default_factory=dict)
    due: Mapping[ir.Var, Sequence[int]] = field(init=False)
    places: dict[ir.Var, tuple[int, Expr]] = field(init=False)
    apart: frozenset[ir.Var] = field(init=False)
    fields: dict[ir.Operand, Sequence[ir.Operand]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.due, self.apart = first_uses(self.plan, self.cfg), taken_apart(self.cfg)
        self.places = self.plan.places

    def block(self, block: ir.Block) -> ir.Block:
        written = tuple(new for one in block.instructions for new in self.written(one))
        return replace(block, instructions=written)

    def reserve(self, index: int) -> ir.AllocStorage:
        """The reservation of an arena."""
        arena = self.plan.arenas[index]
        storage = self.storages[index] = ir.Var("arena", StorageType())
        self.arenas[storage] = arena
        return ir.AllocStorage(var=storage, size=arena.size, device=arena.device, scope=arena.scope)

    def written(self, one: ir.Instruction) -> Iterator[ir.Instruction]:
        """The instructions that stand for one, behind the arenas that are reserved in front of it."""
        for index in self.due.get(one.var, ()):
            yield self.reserve(index)
        match one:
            case ir.AllocFresh(shape=shape, dtype=dtype) if one.var in self.places:
                index, offset = self.places[one.var]
                storage = self.storages[index]
                yield ir.AllocTensor(var=one.var, storage=storage, offset=offset, shape=shape, dtype=dtype)
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

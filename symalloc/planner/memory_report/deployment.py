"""The memory of a module's functions as a server calls them on one device: formulas over named symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.planner.memory_report.non_arena import PAGE, KernelWorkspace
from symalloc.program import ir
from symalloc.program.created_state import DeviceKind, StatePart, created_state
from symalloc.program.operands import instructions_of
from symalloc.program.types import OpaqueType, TensorType, Type, holds_memory, type_leaves
from symalloc.size.expr import ZERO, Expr, constant, round_up
from symalloc.size.sign import undominated


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A tensor that a function takes as a parameter and that stays the same from call to call."""

    name: str
    nbytes: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMemory:
    """The memory of one function that a server calls.

    `weights` it shares with others by their names; `inputs` are the tensors that come anew with each call.
    Of `call` and `kept` the largest counts: sums of bytes that are held together, the results that the
    machine keeps until the next call is over.  `workspace`: the blocks that kernels take of TVM's pool, then
    those that they take while they hold one, while they hold two, and so on: of each the largest counts.
    `doubt`: a call may hold less on the device.  `state`: what it creates.  `takes_none`: it takes no tensor
    and no object.  `unknown` says why there may be more.
    """

    name: str
    weights: tuple[Weight, ...] = ()
    inputs: Expr = ZERO
    call: tuple[Expr, ...] = ()
    doubt: bool = False
    kept: Expr = ZERO
    workspace: tuple[tuple[Expr, ...], ...] = ()
    state: tuple[StatePart, ...] = ()
    takes_none: bool = False
    unknown: tuple[str, ...] = ()
    declared: Mapping[str, int] = field(default_factory=dict)
    signed: frozenset[str] = frozenset()
    symbols: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """All that a module's functions take on one device; `constants` are the bytes in the module itself."""

    functions: tuple[FunctionMemory, ...]
    constants: int = 0


def deployment_of(
    program: ir.Program,
    reports: Sequence[FunctionReport],
    *,
    inputs: Mapping[str, int],
    constants: int,
    device: DeviceKind,
) -> Deployment:
    """The deployment of planned functions; `inputs` tells how many parameters of one are no weights."""
    public = [one for one in reports if not program.functions[one.plan.function].private]
    made = [function_memory(program.functions[one.plan.function], one, inputs, device) for one in public]
    if len(program.devices) > 1:  # what lies on another device counts, too
        made = [replace(function, doubt=True) for function in made]
    return Deployment(functions=tuple(made), constants=constants)


def function_memory(
    function: ir.Function, report: FunctionReport, inputs: Mapping[str, int], device: DeviceKind
) -> FunctionMemory:
    """The memory of one planned function."""
    count = inputs.get(function.name, len(function.params))
    given = [leaf for param in function.params[:count] for _, leaf in type_leaves(param.type)]
    weights, vague = _weights(function.params[count:])
    outcome, outside = report.outcome, report.outside
    calls = [outcome.planned, *([outcome.unplanned] if outcome.fallback else [])]
    state = _created(function, device)
    returned = [result.nbytes for result in outside.returned]
    sized = [leaf.nbytes for leaf in given if isinstance(leaf, TensorType)]
    held = [one for call in calls for one in call.unknown if one.var.name not in state.variables]
    unknown = (
        *vague,
        *state.problems,
        *(f"what `{name}` takes" for call in calls for name in call.unseen if name not in state.names),
        *(call.problem for call in calls if call.problem is not None),
        *(f"the size of `{one.var.name}`" for one in held),
        *(
            f"the workspace of `{use.name}`: {use.problem}"
            for use in outside.kernels
            if use.problem is not None
        ),
        *(
            ["the workspace that each worker thread takes"]
            if any(use.parallel for use in outside.kernels)
            else []
        ),
        *(["the size of an input"] if None in sized else []),
        *(["the size of a result"] if None in returned else []),
    )
    kept = sum((size for size in returned if size is not None), start=ZERO)
    return FunctionMemory(
        name=function.name,
        weights=weights,
        inputs=sum((size for size in sized if size is not None), start=ZERO),
        call=tuple(size for one in calls for size in one.known.sums(report.signed) or ()),
        doubt=any(one.doubt is not None for one in calls),
        kept=kept,
        workspace=_workspace(outside.calls),
        state=tuple(state.parts),
        takes_none=not any(holds_memory(param.type) for param in function.params),
        unknown=tuple(dict.fromkeys(unknown)),
        declared=function.declared_upper,
        signed=report.signed,
        symbols=frozenset(function.symbols),
    )


def _weights(params: Sequence[ir.Var]) -> tuple[tuple[Weight, ...], list[str]]:
    """The tensors among parameters, and what is not known of them."""
    found: list[Weight] = []
    vague: list[str] = []
    for param in params:
        for path, leaf in type_leaves(param.type):
            name = ".".join([param.name, *map(str, path)])
            size = _nbytes(leaf)
            if size is None:
                vague.append(f"the size of the weight `{name}`")
            else:
                found.append(Weight(name=name, nbytes=size))
    return tuple(found), vague


def _nbytes(kind: Type) -> Expr | None:
    if isinstance(kind, TensorType):
        return kind.nbytes
    return None if isinstance(kind, OpaqueType) else ZERO


@dataclass(slots=True)
class _Created:
    """The states that a function creates: parts, variables and callees, and what is not known of them."""

    parts: list[StatePart] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def _created(function: ir.Function, device: DeviceKind) -> _Created:
    """The states that a function creates on a device itself; what it calls in the module is not looked at."""
    found = _Created()
    instructions = [*instructions_of(function.body)]
    alone = not any(isinstance(one, ir.CallFunction) for one in instructions)
    for call in instructions:
        made = created_state(call, device) if isinstance(call, ir.CallPacked) else None
        if isinstance(call, ir.CallPacked) and made is not None:
            found.variables.add(call.var.name)
            found.names |= {call.name} if alone else set()
            found.parts += (part for part in made.parts if device == "cpu" or not part.host)
            found.problems += [] if made.problem is None else [made.problem]
    return found


def _workspace(calls: Sequence[KernelWorkspace]) -> tuple[tuple[Expr, ...], ...]:
    """The blocks that kernels take, then those that they take while they hold one, and so on.

    TVM's pool (`workspace_pool_bytes`) makes a block for a request only if all blocks as large are lent, or
    drops one as large for it.  So no more blocks exceed a size than are held behind a request that does.
    """
    levels: list[list[Expr]] = []
    for call in calls:
        held: set[int] = set()
        for slot, size in call.steps:
            if size is None:
                held.discard(slot)
            else:
                held.add(slot)
                levels += ([constant(PAGE)] for _ in range(len(levels), len(held)))
                for level in levels[: len(held)]:
                    level.append(round_up(size, PAGE))
    return tuple(map(undominated, levels))

"""The memory of a module's functions as a server calls them on one device: formulas over named symbols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, TypeAlias

from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.planner.memory_report.non_arena import PAGE, KernelWorkspace
from symalloc.program import ir
from symalloc.program.created_state import CreatedState, DeviceKind, StatePart, created_state
from symalloc.program.operands import instructions_of
from symalloc.program.types import OpaqueType, TensorType, Type, holds_memory, type_leaves
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr, constant, round_up
from symalloc.size.sign import undominated

Part: TypeAlias = Literal["arenas", "call", "kept", "workspace", "inputs"]
"""Arenas, a call with its results, the result of the call before, workspace and the machine's table of sizes,
inputs with weights and constants.
"""
Sum: TypeAlias = Literal["arenas", "call", "again", "workspace", "everything"]
SUMS: Mapping[Sum, tuple[Part, ...]] = {
    "arenas": ("arenas",),
    "call": ("call",),
    "again": ("call", "kept"),
    "workspace": ("call", "kept", "workspace"),
    "everything": ("call", "kept", "workspace", "inputs"),
}
"""Sums that are asked about, of parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMemory:
    """The memory of one function, which a server calls unless it is `private`.

    `weights` are tensors that stay the same from call to call, and that it shares with others by their names;
    `inputs` are those that come anew with each call.
    Of `call` the largest counts: sums of bytes that are held together, and of `arenas` among them.  `kept`
    are the results that the machine keeps until the next call is over; as many bytes as are `unsure` may be
    none.  `table`: the bytes in which the machine keeps sizes during a call, or fewer, if `optional`, as some
    of the workspace may not be taken then.  `workspace`: the
    blocks that kernels take of TVM's pool, then those that they take while they hold one, while they hold
    two, and so on: of each the largest counts.  `doubt`: a call, or what it creates, may take less on the
    device.  `state`: what it creates.  `takes_none`: it takes no tensor and no object; `objects` are those
    that it takes.  `unknown` says of a part why there may be more.
    """

    name: str
    private: bool = False
    weights: Mapping[str, Expr] = field(default_factory=dict)
    inputs: Expr = ZERO
    arenas: tuple[Expr, ...] = ()
    call: tuple[Expr, ...] = ()
    doubt: bool = False
    kept: Expr = ZERO
    unsure: Expr = ZERO
    workspace: tuple[tuple[Expr, ...], ...] = ()
    table: int = 0
    optional: bool = False
    state: tuple[StatePart, ...] = ()
    takes_none: bool = False
    objects: tuple[str, ...] = ()
    unknown: Mapping[Part, tuple[str, ...]] = field(default_factory=dict)
    declared: Mapping[str, int] = field(default_factory=dict)
    lower: Mapping[str, int] = field(default_factory=dict)
    signed: frozenset[str] = frozenset()
    symbols: frozenset[str] = frozenset()

    @property
    def sizes(self) -> Iterator[Expr]:
        """All sizes of which the sum is made."""
        yield from self.weights.values()
        yield from (one.nbytes for one in self.state)
        yield from (self.inputs, self.kept, *self.call)
        yield from (size for level in self.workspace for size in level)

    @property
    def gaps(self) -> tuple[str, ...]:
        """All that is not known."""
        return tuple(dict.fromkeys(chain.from_iterable(self.unknown.values())))

    def sums(self, asked: Sum, constants: int = 0, *, least: bool = False) -> tuple[Expr, ...]:
        """Sums of bytes of which the largest is what is asked; `least`: only what is held for sure."""
        if asked == "arenas":
            return (ZERO,) if least else self.arenas
        made = sum((one.nbytes for one in self.state if not least or not self.doubt), start=ZERO)
        kept = made + self.kept - (self.unsure if least else ZERO)
        weights = sum(self.weights.values(), start=constant(constants))
        fixed: dict[Part, Expr] = {"call": made, "kept": kept, "inputs": self.inputs + weights}
        fixed["workspace"] = constant(0 if least and self.optional else self.table)
        base = sum((fixed.get(part, ZERO) for part in SUMS[asked]), start=ZERO)
        taken = "workspace" in SUMS[asked] and self.workspace and not (least and self.optional)
        spaces, *further = self.workspace if taken else ((ZERO,),)
        more = ZERO if least else sum((maximum(*level) for level in further), start=ZERO)
        calls = (ZERO,) if least and self.doubt else self.call or (ZERO,)
        return undominated((base + more + call + space for call in calls for space in spaces), self.signed)

    def exact(self, asked: Sum) -> bool:
        """True if that is no less."""
        several = "workspace" in SUMS[asked] and (len(self.workspace) > 1 or self.optional)
        return not (self.doubt or several or ("kept" in SUMS[asked] and self.unsure != ZERO))

    def gap(self, asked: Sum) -> str | None:
        """The first thing for which it is not known how much that is."""
        return next(
            (f"{why} is not known" for part in SUMS[asked] for why in self.unknown.get(part, ())), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """All that a module's functions take on one device; `constants` are the bytes in the module itself.

    `spread`: what lies on other devices counts, too.
    """

    functions: tuple[FunctionMemory, ...]
    constants: int = 0
    spread: bool = False


def deployment_of(
    program: ir.Program,
    reports: Sequence[FunctionReport],
    *,
    inputs: Mapping[str, int],
    constants: int,
    device: DeviceKind,
) -> Deployment:
    """The deployment of planned functions; `inputs` tells how many parameters of one are no weights."""
    made = [function_memory(program.functions[one.plan.function], one, inputs, device) for one in reports]
    spread = len(program.devices) > 1
    if spread:
        made = [replace(function, doubt=True) for function in made]
    return Deployment(functions=tuple(made), constants=constants, spread=spread)


def function_memory(
    function: ir.Function, report: FunctionReport, inputs: Mapping[str, int], device: DeviceKind
) -> FunctionMemory:
    """The memory of one planned function."""
    count = inputs.get(function.name, len(function.params))
    weights, vague = _weights(function.params[count:])
    outcome, outside = report.outcome, report.outside
    calls = [outcome.planned, *([outcome.unplanned] if outcome.fallback else [])]
    created = _created(function, device)
    variables = {call.var for call, _ in created}
    alone = not any(isinstance(one, ir.CallFunction) for one in instructions_of(function.body))
    names = {call.name for call, _ in created if alone}
    returned = [result.nbytes for result in outside.returned]
    sized = {
        (index, path): leaf.nbytes
        for index, param in enumerate(function.params[:count])
        for path, leaf in type_leaves(param.type)
        if isinstance(leaf, TensorType)
    }
    back = {place: sure for place, sure in outside.returned_inputs.items() if place in sized}
    held = [one for call in calls for one in call.unknown if one.var not in variables]
    parallel = any(use.parallel for use in outside.kernels)
    reserved = outcome.reserved
    unknown: dict[Part, list[str]] = {
        "arenas": [] if reserved.not_known is None else [reserved.not_known.removesuffix(" is not known")],
        "call": [
            *(state.problem for _, state in created if state.problem is not None),
            *(f"what `{name}` takes" for call in calls for name in call.unseen if name not in names),
            *(call.problem for call in calls if call.problem is not None),
            *(f"the size of `{one.var.name}`" for one in held),
        ],
        "kept": ["the size of a result"] * (None in returned),
        "workspace": [
            *(f"the workspace of `{use.name}`: {use.problem}" for use in outside.kernels if use.problem),
            *["the workspace that each worker thread takes"] * parallel,
        ],
        "inputs": [*vague, *["the size of an input"] * (None in sized.values())],
    }
    doubt = any(one.doubt is not None for one in calls)
    branches = any(call not in function.body.instructions for call, _ in created)
    parts = [part for _, state in created for part in state.parts]
    results = [_sum(one.padded for one in path) for call in calls for path in call.results]
    made = maximum(*undominated([ZERO, *results], report.signed))
    unsure = _sum(sized[place] for place, sure in back.items() if not sure)
    return FunctionMemory(
        name=function.name,
        private=function.private,
        weights=weights,
        inputs=_sum(sized.values()),
        arenas=(reserved.known.sums(report.signed) or (ZERO,)) if report.placements else (),
        call=tuple(size for one in calls for size in one.known.sums(report.signed) or (ZERO,)),
        doubt=doubt or branches,
        kept=made + _sum(sized[place] for place in back),
        unsure=unsure + (made - _sum(returned) if doubt else ZERO),
        workspace=_workspace(outside.calls),
        table=outside.table,
        optional=outside.branches,
        state=tuple(part for part in parts if device == "cpu" or not part.host),
        takes_none=not any(holds_memory(param.type) for param in function.params),
        objects=tuple(
            name for name, leaf in _leaves(function.params[:count]) if isinstance(leaf, OpaqueType)
        ),
        unknown={part: tuple(dict.fromkeys(why)) for part, why in unknown.items() if why},
        declared=function.declared_upper,
        lower=function.declared_lower,
        signed=report.signed,
        symbols=frozenset(function.symbols),
    )


def _sum(sizes: Iterable[Expr | None]) -> Expr:
    """The sum of those that are known."""
    return sum((size for size in sizes if size is not None), start=ZERO)


def _leaves(params: Sequence[ir.Var]) -> Iterator[tuple[str, Type]]:
    """The parameters and their fields, no two of one name."""
    met: Counter[str] = Counter()
    for param in params:
        met[param.name] += 1
        name = param.name if met[param.name] == 1 else f"{param.name} ({met[param.name]})"
        for path, leaf in type_leaves(param.type):
            yield ".".join([name, *map(str, path)]), leaf


def _weights(params: Sequence[ir.Var]) -> tuple[dict[str, Expr], list[str]]:
    """The tensors among parameters, and what is not known of them."""
    sizes = {name: _nbytes(leaf) for name, leaf in _leaves(params)}
    vague = [f"the size of the weight `{name}`" for name, size in sizes.items() if size is None]
    return {name: size for name, size in sizes.items() if size is not None}, vague


def _nbytes(kind: Type) -> Expr | None:
    if isinstance(kind, TensorType):
        return kind.nbytes
    return None if isinstance(kind, OpaqueType) else ZERO


def _created(function: ir.Function, device: DeviceKind) -> list[tuple[ir.CallPacked, CreatedState]]:
    """The states that a function creates on a device itself; what it calls in the module is not looked at."""
    calls = [one for one in instructions_of(function.body) if isinstance(one, ir.CallPacked)]
    return [(call, made) for call in calls if (made := created_state(call, device)) is not None]


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

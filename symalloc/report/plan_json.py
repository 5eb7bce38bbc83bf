"""Plans as JSON, version 1: the records of the document, written and read back to be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import field

from symalloc.analysis.dependencies import OrderName
from symalloc.analysis.timeline import Timeline
from symalloc.errors import UsageError
from symalloc.planner import memory_plan
from symalloc.planner.memory_plan import Fallback, FurtherArena, TooLarge
from symalloc.planner.memory_report.call_moments import FunctionGraph
from symalloc.planner.memory_report.deployment import Fit, FunctionFit, LargestValue, Sum, Trade
from symalloc.planner.memory_report.function_report import (
    FloorSums,
    FunctionReport,
    MemorySample,
    TargetReport,
    own_memory,
)
from symalloc.planner.memory_report.non_arena import CalleeTensor, DonatedResult, KernelUse, ShrunkKernel
from symalloc.program.ir import Var
from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.report.document import Binding, Count, Document, about, as_json, from_json, record
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr

VERSION = 1
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# -- the document ------------------------------------------------------------------------------------------


Measure: TypeAlias = Literal["call", "arenas", "floor", "results"]
"""Plans are compared by the most that a whole call holds at once, its arenas, their floor, its results."""


class TensorRecord(Document, frozen=True, kw_only=True):
    """A planned tensor and its place in an arena; `operator` writes it first."""

    name: str
    operator: str | None
    size: Expr = field(name="bytes")
    offset: Expr


class BufferEntry(TensorRecord, frozen=True, kw_only=True):
    """A tensor that lies in an arena, the variable of the source that holds it, and the place of the source
    that it is computed for, such as `layers.0 at model.py:12`.
    """

    id: int
    variable: str | None
    source: str | None
    live: Annotated[tuple[tuple[int, int], ...], about("Half-open intervals of moments.")]


class ArenaEntry(Document, frozen=True, kw_only=True):
    """Memory that is reserved at once for several tensors."""

    device: int
    scope: str
    after: Annotated[str | None, about("The variable behind which it is reserved; null: at entry.")]
    result: Annotated[str | None, about("The result whose memory this is; it outlives the call.")]
    apart: Annotated[FurtherArena | None, about("Null for the first.")]
    size: Expr = field(name="bytes")
    buffers: tuple[BufferEntry, ...]


class GuardEntry(Document, frozen=True, kw_only=True):
    """A check at run time: `check` is evaluated, implies `condition` and stays within 64 bits."""

    condition: str
    check: str
    after: Annotated[str | None, about("The variable behind which it stands; null: at entry.")]
    declared: Annotated[bool, about("It is a bound that the function declares, enforced by --bounds.")]


class UnplannedTensor(Document, frozen=True, kw_only=True):
    """A tensor that lies in no arena for another reason."""

    name: str
    nbytes: Expr | None = field(name="bytes")
    reason: str


class OtherPlan(Document, frozen=True, kw_only=True):
    """The plan that TVM's planner makes of the function; `problem`: why there is no plan."""

    storages: Annotated[tuple[Expr | None, ...], about("One for each storage that is reserved.")]
    fresh: Annotated[tuple[Expr | None, ...], about("One for each tensor without, that is not returned.")]
    calls: Annotated[tuple[tuple[Expr | None, ...], ...], about("For each call, what that reserves.")]
    problem: str | None


class OtherPlans(Document, frozen=True, kw_only=True):
    """TVM's plans with the declared bounds, null where none is declared, and without."""

    bounded: OtherPlan | None
    unbounded: OtherPlan


class FitEntry(Document, frozen=True, kw_only=True):
    """The shapes at which some memory takes at most `limit` bytes.

    `condition` is proved to hold exactly there, or, if not `exact`, to be enough; null where none was found.
    `declared`: the verdict within the bounds that the function declares, null where there are none.
    """

    limit: Count
    verdict: str
    condition: str | None
    counterexample: Binding | None
    largest: tuple[LargestValue, ...]
    trade: Trade | None
    declared: str | None
    exact: bool
    unknown: Annotated[str | None, about("Why there may be more memory, beyond all that is told here.")]


class PlannedFunction(Document, frozen=True, kw_only=True):
    """The plan of one function, and the memory of a call; without `fallbacks` the plan is at the floor.

    `reserved` are sums of arenas that are reserved together: the largest is what a call takes of them;
    `held` those of all bytes that a call holds together, results included; null where that is no formula.
    `bounds` gives by symbol the least and the greatest value that the function declares, `signed` the symbols
    that may be negative.  `offsets` counts distinct ones that are no constants: evaluated at each call.
    `returned`: results with memory of their own; `carried`: results in that of inputs.  `packed`: functions
    that are called of which it is not known what they take.  `tvm`: with --compare tvm; `target`: null for a
    CPU; `fits`: only if that was asked, of arenas, where there are some, a whole call, a call beside the
    result of the one before (`again`), the same with workspace, and with weights, inputs and constants;
    `too_large`: tensors that exceed --max-buffer by themselves.  `order_cost`: what another `order` costs, as
    a share of a call with a plan for the order of the text; null if not asked.  `graph`: what waits for what,
    with fences.  `shrunk`: kernels that took memory of their own (--shrink).  `pieces`: what --chunks cut.
    """

    function: str
    arenas: tuple[ArenaEntry, ...]
    floor: tuple[FloorSums, ...]
    reserved: tuple[Expr, ...] | None
    held: tuple[Expr, ...] | None
    bounds: dict[str, tuple[int | None, int | None]]
    signed: tuple[str, ...]
    offsets: Count
    fallbacks: tuple[Fallback, ...]
    guards: tuple[GuardEntry, ...]
    returned: tuple[Expr | None, ...]
    donated: tuple[DonatedResult, ...] = field(name="carried")
    made: tuple[CalleeTensor, ...]
    unplanned: tuple[UnplannedTensor, ...]
    kernels: tuple[KernelUse, ...]
    packed: tuple[str, ...]
    tvm: OtherPlans | None
    target: TargetReport | None
    samples: tuple[MemorySample, ...]
    order: OrderName = "total"
    order_cost: float | None = None
    graph: FunctionGraph | None = None
    too_large: tuple[TooLarge, ...] | msgspec.UnsetType = msgspec.UNSET
    fits: dict[Sum, FitEntry] | msgspec.UnsetType = msgspec.UNSET
    shrunk: tuple[ShrunkKernel, ...] = ()
    pieces: str | None = None

    @property
    def sums(self) -> Mapping[Measure, tuple[Expr, ...] | None]:
        """Sums of bytes of which the largest is what each measure takes; None where it is no formula."""
        known = [size for size in self.returned if size is not None]
        places = [floor.sums for floor in self.floor if floor.sums]
        floor = sum((maximum(*sums) for sums in places), start=ZERO)
        return {
            "call": self.held,
            "arenas": self.reserved,
            "floor": places[0] if len(places) == 1 else (floor,),
            "results": (sum(known, start=ZERO),) if len(known) == len(self.returned) else None,
        }

    @property
    def tensors(self) -> tuple[TensorRecord, ...]:
        """Every planned tensor, in the order of allocation."""
        buffers = sorted((b for arena in self.arenas for b in arena.buffers), key=lambda b: b.id)
        return tuple(record(TensorRecord, b) for b in buffers)

    @property
    def domain(self) -> Domain:
        """The shapes without empty dimensions within the declared bounds."""
        lower = {name: least for name, (least, _) in self.bounds.items() if least is not None}
        scalars = dict.fromkeys(set(self.signed) - lower.keys(), INT64_MIN)
        dimensions = {n: bound if n in self.signed else max(bound, 1) for n, bound in lower.items()}
        upper = {name: most for name, (_, most) in self.bounds.items() if most is not None}
        return Domain(lower={**scalars, **dimensions}, upper=upper, default_lower=1)


class PlanDocument(Document, frozen=True, kw_only=True, tag_field="version", tag=VERSION):
    """The plans of the functions of a module; sizes and offsets are bytes."""

    functions: tuple[PlannedFunction, ...]


# -- writing -----------------------------------------------------------------------------------------------


def plans_as_json(reports: Sequence[FunctionReport], fits: Sequence[FunctionFit] = ()) -> str:
    """Return the plans as JSON; `fits`: where each function fits, if that was asked."""
    asked = fits or (None,) * len(reports)
    return as_json(PlanDocument(functions=tuple(map(function_document, reports, asked))))


def function_document(report: FunctionReport, fit: FunctionFit | None = None) -> PlannedFunction:
    """Return the report of one function."""
    plan, outside, both = report.plan, report.outside, report.comparison
    declared = sorted(report.lower.keys() | report.upper.keys())
    return record(
        PlannedFunction,
        report,
        plan,
        outside,
        arenas=[_arena(arena, report) for arena in plan.arenas],
        bounds={name: (report.lower.get(name), report.upper.get(name)) for name in declared},
        signed=sorted(report.signed),
        guards=[_guard(guard) for guard in plan.guards],
        returned=[result.nbytes for result in outside.returned],
        tvm=None
        if both is None
        else OtherPlans(
            bounded=None if both.bounded is None else _other(both.bounded), unbounded=_other(both.unbounded)
        ),
        too_large=plan.too_large or msgspec.UNSET,
        fits=msgspec.UNSET if fit is None else {what: _fit(one) for what, one in fit.sums.items()},
    )


def _arena(arena: memory_plan.Arena, report: FunctionReport) -> ArenaEntry:
    return record(
        ArenaEntry,
        arena,
        after=_name(arena.defined_by),
        result=None if arena.result is None else arena.result.name,
        apart=arena.further,
        buffers=[
            record(BufferEntry, p.buffer, report.origin(p.buffer), offset=p.offset) for p in arena.placements
        ],
    )


def _guard(guard: memory_plan.Guard) -> GuardEntry:
    return record(
        GuardEntry,
        guard,
        condition=str(guard.condition),
        check=str(guard.check),
        after=_name(guard.defined_by),
    )


def _other(memory: Timeline) -> OtherPlan:
    called: dict[int, list[Expr | None]] = {}
    for one in memory.taken():
        if one.frame.caller is not None:
            called.setdefault(id(one.frame), []).append(one.size)
    return OtherPlan(
        storages=tuple(one.size for one in own_memory(memory, "storage")),
        fresh=tuple(one.size for one in own_memory(memory, "tensor")),
        calls=tuple(map(tuple, called.values())),
        problem=memory.problem,
    )


def _fit(fit: Fit) -> FitEntry:
    proof = fit.proof
    condition = None if proof.precondition is None else str(proof.precondition)
    declared = None if fit.within is None else fit.within.verdict.value
    return record(FitEntry, fit, proof, verdict=proof.verdict.value, condition=condition, declared=declared)


def _name(variable: Var | None) -> str | None:
    return None if variable is None else variable.name


# -- reading -----------------------------------------------------------------------------------------------


class _Head(msgspec.Struct):
    version: Any
    functions: msgspec.Raw


def is_plan_report(data: bytes) -> bool:
    """Return whether a file is the JSON of `symalloc plan`, and not that of a module."""
    if data.lstrip()[:1] != b"{":
        return False
    try:
        msgspec.json.decode(data, type=_Head)
    except UNREADABLE:
        return False
    return True


def read_plan(name: str, data: str | bytes) -> tuple[PlannedFunction, ...]:
    """Return the plans in the JSON `data`; raises UsageError, which names `name`."""
    try:
        version = msgspec.json.decode(data, type=_Head).version
        if version != VERSION:
            raise UsageError(f"{name}: a plan report of version {version!r}, only {VERSION} is known")
        functions = from_json(data, PlanDocument).functions
    except UNREADABLE as error:
        raise UsageError(
            f"{name}: the plan report is not understood: {error}; write it again with this symalloc"
        ) from None
    twice = [one for one, count in Counter(f.function for f in functions).items() if count > 1]
    if twice:
        raise UsageError(f"{name}: the plan report has several functions called `{twice[0]}`")
    return functions

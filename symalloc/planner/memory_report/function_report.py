"""The memory report of one function: the formulas of its plan, and bytes at sample bindings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import msgspec

from symalloc.analysis.register_machine import Reservation, Why
from symalloc.analysis.tensor_origin import NO_ORIGIN, TensorOrigin
from symalloc.analysis.timeline import Timeline
from symalloc.errors import UsageError, meant
from symalloc.planner.interference import live_sums
from symalloc.planner.memory_plan import Buffer, Placement, Plan, Unplanned
from symalloc.planner.memory_report.call_moments import CallPeak, FunctionGraph, Operators, call_peak
from symalloc.planner.memory_report.non_arena import PAGE, NonArenaMemory, workspace_pool_bytes
from symalloc.program.ir import Function, Origin, Var
from symalloc.program.types import MODEL_SIZES
from symalloc.prover.domain import INT64_MAX
from symalloc.shown import Shown
from symalloc.size.choice import undominated
from symalloc.size.expr import Expr, combined, evaluated, highest, total


class TargetReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts about the target of a plan that a report tells.

    `name` is TVM's.  `present`: this machine has a device of it.  `generated`: this build of TVM makes code
    for it.  `flavour`: what the tensors lie in; `shared`: a kernel can read and write tensors of one storage.
    `kernels` counts those that the function calls, `offset_kernels` those among them that take a tensor at an
    offset, `grounded` the tensors that start a storage because more than kernels looks at them.  `kept` are
    the `kept_bytes` of a call at each sample.
    """

    name: str
    present: bool
    generated: bool
    flavour: str
    shared: bool
    kernels: int
    offset_kernels: int
    grounded: int
    kept: int | None = None


def kept_bytes(arenas: Timeline, bindings: Sequence[Mapping[str, int]]) -> int | None:
    """The bytes that TVM's pooled allocator holds for arenas behind a call at each of `bindings`.

    Follows apache-tvm 0.27's PooledAllocator: it keeps blocks by their size in whole pages, and gives one out
    for that size only, as soon as it is back.  None where all calls ask for the same, or a size is not known.
    """
    if len(bindings) < 2 or all(one.size is not None and not one.size.symbols for one in arenas.taken()):
        return None
    kept: Counter[int] = Counter()
    for at in bindings:
        changes: list[tuple[int, int, int]] = []  # what ends at a step is back before anything begins there
        for one in arenas.reservations:
            size = evaluated(one.size, at)
            if size is None:
                return None
            pages = -(-size // PAGE)
            changes += (one.begin, 1, pages), (one.end, -1, pages)
        held: Counter[int] = Counter()
        for _, change, pages in sorted(changes):
            held[pages] += change
            kept[pages] = max(kept[pages], held[pages])
    return sum(PAGE * pages * count for pages, count in kept.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """A call of one function as it was planned (`planned`), and with no plan at all (`unplanned`).

    `arenas` are the storages of the plan that are not the memory of results.  `operators` are those that run
    without a plan.  `fallback`: a call that the check at entry refuses runs without the plan.  `in_place` has
    no plan either, and writes outputs over what kernels read last, as the plan does with `written` of them.
    """

    planned: Timeline = field(default_factory=Timeline)
    unplanned: Timeline = field(default_factory=Timeline)
    in_place: Timeline | None = None
    written: int = 0
    arenas: Collection[Var] = ()
    operators: Operators = field(default_factory=Operators)
    fallback: bool = False

    @property
    def reserved(self) -> Timeline:
        """The arenas alone, as they are held."""
        arenas = self.arenas
        return self.planned.only(lambda one: one.var in arenas and one.frame.caller is None)


def own_memory(memory: Timeline, why: Why) -> list[Reservation]:
    """The storages of a function itself, or the tensors that have memory of their own, less results."""
    return [one for one in memory.taken() if one.why == why and one.frame.caller is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmComparison:
    """A call of one function behind StaticPlanBlockMemory, with the bounds that the function declares (None
    where it declares none), and without; the problem of a timeline says why there is no plan.

    `origins` tells what writes each storage and tensor first.
    """

    bounded: Timeline | None
    unbounded: Timeline
    origins: Mapping[Var, TensorOrigin] = field(default_factory=dict)


BoundLabel: TypeAlias = Literal["bound", "beyond"]
_AT_ENTRY = (Origin.DIMENSION, Origin.SCALAR)
EXTENTS = (1, 16, 128, 1024)  # every symbol alike, but within its declared bounds
BEYOND = 2  # times the declared bound: bounds are not enforced by TVM


class SampleError(UsageError):
    """A binding that does not fit the function; the text is meant for the user."""


def bound_label(binding: Mapping[str, int], function: Function) -> BoundLabel | None:
    """Return `bound` for a binding at the declared upper bounds, `beyond` past one of them."""
    upper = {name: bound for name, bound in function.declared_upper.items() if name in binding}
    if any(binding[name] > bound for name, bound in upper.items()):
        return "beyond"
    return "bound" if upper and all(binding[name] == bound for name, bound in upper.items()) else None


def standard(symbols: Iterable[str], function: Function) -> list[dict[str, int]]:
    """Small to large extents, the declared upper bounds, and extents beyond them."""
    names = sorted(symbols)
    if not names:
        return [{}]
    lower, upper = function.declared_lower, function.declared_upper
    wanted = [{name: MODEL_SIZES.get(name, extent) for name in names} for extent in EXTENTS]
    found = [
        {
            name: min(max(extent, lower.get(name, 0)), upper.get(name, INT64_MAX))
            for name, extent in one.items()
        }
        for one in wanted
    ]
    upper = {name: bound for name, bound in upper.items() if name in names}
    if upper:
        beyond = {name: BEYOND * bound for name, bound in upper.items()}
        found += [{**found[-1], **upper}, {**found[-1], **beyond}]
    return [binding for i, binding in enumerate(found) if binding not in found[:i]]


def chosen(
    symbols: Iterable[str], function: Function, wanted: Sequence[Mapping[str, int]]
) -> list[dict[str, int]]:
    """Those of the bindings `wanted` that give a value to each of `symbols` that is known at entry, without
    what else they give; raises SampleError for a negative extent.
    """
    names = sorted(symbols)
    needed = needed_at_entry(names, function)
    fitting = [
        {name: binding[name] for name in names if name in binding}
        for binding in wanted
        if all(name in binding for name in needed)
    ]
    for name, value in (item for binding in fitting for item in binding.items()):
        if value < 0 and function.symbols.get(name) is not Origin.SCALAR:
            raise SampleError(f"`{name}` is an extent of a tensor and cannot be {value}")
    return fitting


def needed_at_entry(symbols: Iterable[str], function: Function) -> list[str]:
    """Return those of `symbols` that are known at entry: a binding must give each of them a value."""
    return [name for name in symbols if function.symbols.get(name) in _AT_ENTRY]


def require_symbols(names: Iterable[str], known: Collection[str], of: str = "the module's functions") -> None:
    """Raise SampleError for the first of `names` that is not among the `known` symbols of something."""
    for name in sorted(frozenset(names).difference(known)):
        hint = meant(name, sorted(known)) or f"; there are {', '.join(sorted(known)) or 'none'}"
        raise SampleError(f"`{name}` is no symbol of {of}{hint}")


def check_wanted(
    wanted: Sequence[Mapping[str, int]],
    functions: Mapping[str, Iterable[str]],
    later: Iterable[str] = (),
    *,
    partial: bool = False,
) -> None:
    """Raises SampleError where a binding names a symbol of none of `functions`, or lacks one of all of them,
    but for one that may be `partial`.

    `functions` holds, by name, the symbols that a binding must give; `later` those that it may give, because
    they become known only during the call.
    """
    known = frozenset(later).union(*functions.values())
    for binding in wanted:
        require_symbols(binding, known)
        if not partial and not any(frozenset(names) <= binding.keys() for names in functions.values()):
            text = ", ".join(f"{name} = {value}" for name, value in binding.items()) or "no size"
            takes = "; ".join(f"`{name}` takes {', '.join(sorted(of))}" for name, of in functions.items())
            raise SampleError(f"{text} gives no function all that it takes: {takes}")


def check_sizes(binding: Mapping[str, int], functions: Collection[Function]) -> None:
    """Raises SampleError for a size that no function has, and for a negative extent."""
    require_symbols(binding, {name for function in functions for name in function.symbols})
    for function in functions:
        chosen(binding.keys() & function.symbols.keys(), function, [binding])


class MemorySample(Shown, msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of one call at one binding; null where they are not known there.

    `arena`: what the arenas reserve, without those in the memory of results; `floor`: the least that any
    plan of this order needs for the tensors in them, `ratio` arena over floor, 1 where nothing is live;
    `in_place`: by how much less a call without a plan holds where kernels write over what they read last, as
    is proved that they can; null where none can, or that was not tried;
    `unshared`: all planned tensors without any reuse, `saved` the share of it that the arena does without.
    `returned`, `made` (by functions that it calls) and `unplanned`: what lies in no arena; `donated`
    (`carried`): results in inputs that the caller gives up.  `workspace`: the most that one kernel holds of
    its own; `pool`: what TVM's pool of a fresh thread keeps for that in the end.  `table`: what the machine
    keeps sizes in, at most; `kept`: the results that it holds until the next call is over.  `call`:
    the most that a call holds together with its results; `call_unplanned`, `call_bounded`, `call_unbounded`:
    the same without any plan and with TVM's, with and without the declared bounds.  `blocks`: in how many
    pieces at most, the table one of them.
    `known_call`, `known_unplanned`: the same of what is known, which is the least.  `whole`: call, pool and
    table; `further`: a further call, with what is kept of the one before.
    `exact`: the call holds no less, and `pool_exact` is the pool no less; else it may.  `label`: `bound` at
    the declared bounds, `beyond` past them, where TVM's bounds are too little.  `peak`: what makes the most
    that the tensors of a call take together.  `refused`: a guard refuses this binding; `falls_back`: the call
    runs without the plan.
    """

    binding: Mapping[str, int]
    label: BoundLabel | None = None
    arena: int | None
    floor: int | None
    ratio: float | None
    in_place: int | None = None
    unshared: int | None
    saved: float | None
    returned: int | None
    made: int | None
    unplanned: int | None
    donated: int | None = msgspec.field(name="carried")
    workspace: int | None
    pool: int | None
    table: int = 0
    kept: int | None = None
    call: int | None = None
    blocks: int | None = None
    call_unplanned: int | None = None
    call_bounded: int | None = msgspec.field(name="call_tvm_bounded", default=None)
    call_unbounded: int | None = msgspec.field(name="call_tvm_unbounded", default=None)
    known_call: int | None = None
    known_unplanned: int | None = None
    whole: int | None = None
    further: int | None = None
    exact: bool = True
    pool_exact: bool = True
    peak: CallPeak | None = None
    refused: bool = False
    falls_back: bool = False

    @property
    def call_ratio(self) -> float | None:
        """The most that a call holds over the same without a plan."""
        return _ratio(self.call, self.call_unplanned)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorSums:
    """The sums of bytes that are live together on one device and memory scope: the largest is the floor."""

    device: int
    scope: str
    sums: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionReport:
    """The plan of one function, and the memory of a call at sample bindings.

    `outside` is the memory that lies in no arena; `unplanned` are the plan's own, less what is returned;
    `outcome` is what a call holds at each moment; `target` what the plan was made for, None for a CPU.
    `upper` holds the bounds that the function declares, by symbol; `origins` tells what writes each tensor.
    `lower` holds lower bounds as `upper` does, and `signed` the symbols that may be negative.
    `asked`: the samples are those that somebody asked for.  `graph`: its calls with edges, where asked.
    """

    plan: Plan
    outside: NonArenaMemory
    unplanned: tuple[Unplanned, ...]
    floor: tuple[FloorSums, ...]
    samples: tuple[MemorySample, ...]
    outcome: PlanOutcome = field(default_factory=PlanOutcome)
    comparison: TvmComparison | None = None
    target: TargetReport | None = None
    upper: Mapping[str, int] = field(default_factory=dict)
    lower: Mapping[str, int] = field(default_factory=dict)
    signed: frozenset[str] = frozenset()
    origins: Mapping[Var, TensorOrigin] = field(default_factory=dict)
    asked: bool = False
    graph: FunctionGraph | None = None

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Every planned tensor, in the order of allocation."""
        placed = (p for arena in self.plan.arenas for p in arena.placements)
        return tuple(sorted(placed, key=lambda p: p.buffer.id))

    def origin(self, buffer: Buffer) -> TensorOrigin:
        """The origin of the tensor in a buffer."""
        return NO_ORIGIN if buffer.var is None else self.origins.get(buffer.var, NO_ORIGIN)

    @property
    def shown_first(self) -> Mapping[str, int]:
        """The sizes to begin with: those that were asked for, else the declared bounds, else typical ones."""
        if self.asked:
            return self.samples[0].binding
        bound = [sample for sample in self.samples if sample.label == "bound"]
        shown = (*bound, *self.samples[: len(EXTENTS) - 1][-1:])
        return shown[0].binding if shown else {}

    @property
    def packed(self) -> tuple[str, ...]:
        """The functions that are called, by kernels too, and of which it is not known what they take."""
        return tuple(sorted(self.outcome.planned.unseen))

    @property
    def held(self) -> tuple[Expr, ...] | None:
        """Sums of bytes that a call holds together, results included: the largest is what it takes at most.

        None where that is no formula.
        """
        return self.outcome.planned.sums(self.signed)

    @property
    def reserved(self) -> tuple[Expr, ...] | None:
        """Sums of bytes of arenas that are held together, less those that are the memory of results: the
        largest is what a call needs for them.  None where that is no formula.
        """
        return self.outcome.reserved.sums(self.signed)

    @property
    def storages_before(self) -> int:
        """The number of storages that the module reserves by itself: those of a plan made before."""
        return len(own_memory(self.outcome.unplanned, "storage"))

    @property
    def offsets(self) -> int:
        """The number of distinct offsets that are no constants, which the VM evaluates at each call."""
        return len({p.offset for p in self.placements if p.offset.as_constant is None})


def function_report(
    plan: Plan,
    function: Function,
    outside: NonArenaMemory,
    *,
    outcome: PlanOutcome = PlanOutcome(),
    comparison: TvmComparison | None = None,
    target: TargetReport | None = None,
    origins: Mapping[Var, TensorOrigin] = {},
    wanted: Sequence[Mapping[str, int]] = (),
    graph: FunctionGraph | None = None,
) -> FunctionReport:
    """Return the report of `plan`, shown at those of the bindings `wanted` that fit it, or at standard ones.

    `outcome`: what a call holds at each moment; `origins`: what writes each tensor; `target`: what it is
    planned for, where that is no CPU. Raises SampleError for a negative extent.
    """
    returned = frozenset(v for r in outside.returned for v in r.allocations)
    names = frozenset(v.name for v in returned)
    unplanned = tuple(
        u for u in plan.unplanned if not (u.name in names if u.var is None else u.var in returned)
    )
    symbols = plan_symbols(plan, outside)
    asked = chosen(symbols, function, wanted)
    shown = asked or standard(symbols, function)
    report = FunctionReport(
        plan=plan,
        outside=outside,
        unplanned=unplanned,
        floor=floors(plan),
        samples=(),
        outcome=outcome,
        comparison=comparison,
        target=None
        if target is None
        else msgspec.structs.replace(target, kept=kept_bytes(outcome.reserved, shown)),
        upper=function.declared_upper,
        lower=function.declared_lower,
        signed=signed_symbols(function),
        origins=origins,
        asked=bool(asked),
        graph=graph,
    )
    return replace(report, samples=tuple(sample_at(report, at, bound_label(at, function)) for at in shown))


def signed_symbols(function: Function) -> frozenset[str]:
    """Return the symbols that may be negative."""
    return frozenset(name for name, origin in function.symbols.items() if origin is Origin.SCALAR)


def plan_symbols(plan: Plan, outside: NonArenaMemory) -> frozenset[str]:
    """Return the symbols that the sizes of a function depend on."""
    sizes = [
        *(p.buffer.size for a in plan.arenas for p in a.placements),
        *(u.nbytes for u in plan.unplanned),
        *(r.nbytes for r in outside.returned),
        *(m.nbytes for m in outside.made),
        *(c.nbytes for c in outside.donated),
        *(use.nbytes for use in outside.kernels),
    ]
    return frozenset().union(*(size.symbols for size in sizes if size is not None))


def floors(plan: Plan) -> tuple[FloorSums, ...]:
    """The floor of the planned tensors on each device and scope, less those that lie in results."""
    places: dict[tuple[int, str], list[Buffer]] = {}
    for arena in plan.arenas:
        if arena.result is None and arena.placements:
            places.setdefault((arena.device, arena.scope), []).extend(p.buffer for p in arena.placements)
    return tuple(
        FloorSums(device=device, scope=scope, sums=undominated(live_sums(buffers)))
        for (device, scope), buffers in sorted(places.items())
    )


def sample_at(report: FunctionReport, at: Mapping[str, int], label: BoundLabel | None) -> MemorySample:
    """The bytes of a call at a binding."""
    plan, outside, outcome, both = report.plan, report.outside, report.outcome, report.comparison
    refused = plan.refusing(at)
    falls_back = outcome.fallback and any(guard.defined_by is None for guard in refused)
    unplanned, whole, arena = outcome.unplanned.peak(at), outcome.planned.peak(at), outcome.reserved.peak(at)
    known, known_unplanned = outcome.planned.peak(at, known=True), outcome.unplanned.peak(at, known=True)
    assert known is None or arena is None or arena <= known, "arenas are part of a whole call"
    taken = [size for call in outside.calls for _, size in call.steps if size is not None]
    sized = all(call.problem is None for call in outside.calls) and total(taken, at) is not None
    call, known_call = (unplanned, known_unplanned) if falls_back else (whole, known)
    floor = combined(sum, (highest(each.sums, at) for each in report.floor))
    unshared = total((p.buffer.size for p in report.placements if not p.buffer.returned), at)
    pool = workspace_pool_bytes(outside.calls, at) if sized else None
    held = outcome.unplanned if falls_back else outcome.planned
    kept = combined(max, [0, *(total((one.padded for one in path), at) for path in held.results)])
    over = None if outcome.in_place is None else outcome.in_place.peak(at)
    with_pool, unsaved = combined(sum, (call, pool, outside.table)), _ratio(arena, unshared)
    return MemorySample(
        binding=at,
        label=label,
        arena=arena,
        floor=floor,
        ratio=_ratio(arena, floor),
        in_place=None if unplanned is None or over is None else unplanned - over,
        unshared=unshared,
        saved=None if unsaved is None else 1 - unsaved,
        returned=total((r.nbytes for r in outside.returned), at),
        made=total((m.nbytes for m in outside.made), at),
        unplanned=total((u.nbytes for u in report.unplanned), at),
        donated=total((c.nbytes for c in outside.donated), at),
        workspace=highest([use.nbytes for use in outside.kernels], at) if sized else None,
        pool=pool,
        call=call,
        blocks=combined(sum, (held.blocks, min(outside.table, 1))),
        call_unplanned=unplanned,
        call_bounded=None if both is None or both.bounded is None else both.bounded.peak(at),
        call_unbounded=None if both is None else both.unbounded.peak(at),
        known_call=known_call,
        known_unplanned=known_unplanned,
        table=outside.table,
        kept=kept,
        whole=with_pool,
        further=combined(sum, (with_pool, kept)),
        exact=held.doubt is None,
        pool_exact=not outside.branches,
        peak=call_peak(outcome.unplanned, at, report.origins, outcome.operators),
        refused=bool(refused),
        falls_back=falls_back,
    )


def _ratio(bytes_: int | None, base: int | None) -> float | None:
    if bytes_ is None or base is None:
        return None
    return bytes_ / base if base else 1.0

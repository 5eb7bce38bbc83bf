"""The figures of a run as JSON, and for a person: a few lines for one binding, a table for several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean, median
from typing import Annotated, Literal

from msgspec import field

from symalloc.planner.memory_report.deployment import Sum
from symalloc.planner.memory_report.runs import (
    LimitUse,
    Output,
    Peer,
    PlanKind,
    PoolUse,
    RunReport,
    RunResult,
)
from symalloc.report.document import Binding, Count, Document, about, as_json, record
from symalloc.report.plan_text import SUM_TITLES
from symalloc.report.quantities import at_binding, binding_text, columns, human_bytes, times

# -- JSON --------------------------------------------------------------------------------------------------


class Pool(PoolUse, frozen=True, kw_only=True):
    """The use of a pool by some calls, in bytes; `ratio`: reserved over live."""

    ratio: float


class Run(Document, frozen=True, kw_only=True):
    """Calls at one binding; `seconds` is the median, `tvm_seconds` the same of TVM's plan on its pool.

    `time_ratio`: the median over the turns of our time over TVM's.  `pool` is null where there was none,
    `same_as_unplanned` where it was not compared.  `undetermined`: elements that are computed from memory
    that nothing has written, and that differ for that.  `unused`: the check at entry that fails, so that the
    function ran without its plan.
    """

    function: str
    binding: Binding
    plan: PlanKind
    calls: Count
    seconds: float
    tvm_seconds: float | None
    time_ratio: float | None
    planned: Count = field(name="tensors_planned")
    arena: Count | None
    floor_bytes: Count | None = field(name="floor")
    ratio: float | None
    outputs: tuple[Output, ...]
    pool: Pool | None
    same_as_unplanned: bool | None
    difference: str | None
    undetermined: str | None
    unused: str | None


class RefusedRun(Document, frozen=True, kw_only=True):
    """Why the pool ended the run, and at which binding."""

    message: str
    binding: Mapping[str, int] | None


class RunDocument(Document, frozen=True, kw_only=True, tag_field="version", tag=1):
    """Runs at several bindings; `ok`: nothing was refused, and nothing differs."""

    ok: bool
    runs: tuple[Run, ...]
    pool: Pool | None
    tvm: Annotated[dict[Literal["reserved"], int] | None, about("Bytes that its pool has at last.")]
    refused: RefusedRun | None
    limit: LimitUse | None


def run_as_json(report: RunReport) -> str:
    """Return the runs as JSON; sizes are bytes, times seconds."""
    peers: Sequence[tuple[float, float] | None] = [None] * len(report.results)
    if report.peer is not None:
        peers = list(zip(report.peer.seconds, report.peer.ratios, strict=True))
    refused = report.refused
    return as_json(
        RunDocument(
            ok=report.ok,
            runs=tuple(_run(r, theirs) for r, theirs in zip(report.results, peers, strict=True)),
            pool=_use(report.pool),
            tvm=None if report.peer is None else {"reserved": report.peer.reserved},
            refused=None if refused is None else RefusedRun(message=refused, binding=report.refused_at),
            limit=report.limit,
        )
    )


def _run(result: RunResult, theirs: tuple[float, float] | None) -> Run:
    return record(
        Run,
        result,
        calls=len(result.seconds),
        seconds=round(median(result.seconds), 9),
        tvm_seconds=None if theirs is None else round(theirs[0], 9),
        time_ratio=None if theirs is None else round(theirs[1], 4),
        arena=result.arena_bytes if result.plan == "symalloc" else None,
        ratio=None if result.ratio is None else round(result.ratio, 6),
        pool=_use(result.pool),
        same_as_unplanned=result.difference is None if result.checked else None,
    )


def _use(pool: PoolUse | None) -> Pool | None:
    return None if pool is None else record(Pool, pool, ratio=round(pool.ratio, 6))


# -- text --------------------------------------------------------------------------------------------------

MOST_ROWS = 24
COLUMNS = ("calls", "time", "arena", "floor", "outputs", "storages", "live", "reserved", "ratio")
PLANNERS = {"tvm": "StaticPlanBlockMemory's storages", "none": "a storage for each tensor"}


def run_as_text(report: RunReport) -> str:
    """All of `report` but its trace."""
    lines = list(_single(report.results[0]) if len(report.results) == 1 else _table(report))
    pool = report.pool
    if pool is not None:
        lines.append(
            f"pool: {pool.storages:.4g} storages a call, at most {human_bytes(pool.peak_live)} live, "
            f"{human_bytes(pool.peak_reserved)} reserved, reserved / live: {pool.ratio:.3f}; "
            f"pages taken {pool.commits} times, given back {pool.decommits} times"
        )
    if report.peer is not None:
        lines += _peer(report.results, report.peer, report.pool)
    lines += _checked(report.results)
    lines += [] if report.limit is None else _limit(report.limit)
    if report.refused is not None:
        lines.append(f"REFUSED by the pool{at_binding(report.refused_at)}: {report.refused}")
    return "".join(f"{line}\n" for line in lines)


# -- one binding --------------------------------------------------------------------------------------------


def _single(result: RunResult) -> Iterator[str]:
    outputs = ", ".join(f"{o.dtype}{list(o.shape)}" for o in result.outputs) or "nothing"
    yield f"{result.function}({binding_text(result.binding)}) returns {outputs}"
    yield _arena(result)
    yield f"outputs: {human_bytes(result.output_bytes)}"
    typical, count = _duration(_typical(result.seconds)), len(result.seconds)
    calls = f"median of {count - 1} warm calls" if count > 1 else "one cold call: --repeat 25 tells more"
    yield f"time: {typical}, {calls}"


def _typical(seconds: Sequence[float]) -> float:
    """The median of all calls but the first, which is cold; of the first where there is no other."""
    return median(seconds[1:] or seconds)


def _arena(result: RunResult) -> str:
    if result.plan != "symalloc":
        return f"arena: none, {PLANNERS[result.plan]}"
    if result.unused is not None:
        return "arena: none, the plan was not used"
    if not result.planned:
        return "arena: none, no tensor was left to plan"
    if result.ratio is None:
        return f"arena: for {result.planned} tensors; its size depends on what becomes known during the run"
    return (
        f"arena: {human_bytes(result.arena_bytes)} for {result.planned} tensors, "
        f"floor: {human_bytes(result.floor_bytes)}, "
        f"arena / floor: {result.ratio:.3f}"
    )


# -- several ------------------------------------------------------------------------------------------------


def _table(report: RunReport) -> Iterator[str]:
    if not report.results:
        return
    results = report.results
    total = sum(len(r.seconds) for r in results)
    yield f"{results[0].function} at {len(results)} bindings, {total} calls"
    last, count = len(results) - 1, min(len(results), MOST_ROWS)  # the first, the last, others evenly between
    rows = [("", *COLUMNS), *(_row(results[i * last // (count - 1)]) for i in range(count))]
    shown = [i for i in range(len(rows[0])) if i == 0 or any(row[i] != "-" for row in rows[1:])]
    yield from (f"  {line}" for line in columns([[row[i] for i in shown] for row in rows]))
    if len(results) > MOST_ROWS:
        yield f"  {len(results) - MOST_ROWS} bindings more; --format json holds all"


def _row(result: RunResult) -> tuple[str, ...]:
    planned, pool = result.plan == "symalloc" and result.unused is None, result.pool
    use = ("-",) * 4
    if pool is not None:
        sizes = (human_bytes(pool.peak_live), human_bytes(pool.peak_reserved))
        use = (f"{pool.storages:.4g}", *sizes, times(pool.ratio))
    return (
        binding_text(result.binding),
        str(len(result.seconds)),
        _duration(_typical(result.seconds)),
        "not used" if result.unused is not None else human_bytes(result.arena_bytes if planned else None),
        human_bytes(result.floor_bytes if planned else None),
        human_bytes(result.output_bytes),
        *use,
    )


# -- below both ---------------------------------------------------------------------------------------------


def _peer(results: Sequence[RunResult], peer: Peer, pool: PoolUse | None) -> Iterator[str]:
    yield f"TVM's plan on its pooled allocator: {human_bytes(peer.reserved)} reserved"
    if pool is not None and peer.reserved:
        yield f"  reserved, ours / TVM's: {pool.peak_reserved / peer.reserved:.3f}"
    turns = min((len(r.seconds) for r in results), default=0)
    if peer.ratios:
        told = f"median of {turns} turns" if turns > 1 else "one turn only: --repeat 25 tells more"
        yield f"  time, ours / TVM's: {geometric_mean(peer.ratios):.3f}, {told}"


def _limit(taken: LimitUse) -> Iterator[str]:
    where, sums = at_binding(taken.binding), taken.sums
    yield f"with the limit of {human_bytes(taken.limit)}{where}, which the pool takes in pages:"
    pooled: tuple[Sum, ...] = ("arenas", "call", "again")
    for what in (what for what in pooled if what in sums):
        nbytes = sums[what]
        more = "" if nbytes is None else f", {'more' if nbytes > taken.limit else 'no more'} than that"
        if nbytes is not None and nbytes <= taken.limit < nbytes + taken.ends:
            more += f", without pages that storages do not fill, up to {human_bytes(taken.ends)}"
        yield f"  {SUM_TITLES[what]}: {human_bytes(nbytes)}{more}"
    pool, workspace, whole = sums["again"], sums["workspace"], sums["everything"]
    kernels = None if pool is None or workspace is None else human_bytes(workspace - pool)
    around = None if workspace is None or whole is None else human_bytes(whole - workspace)
    yield (
        f"  beside the pool: workspace of kernels and the table of sizes, {kernels or 'not known'}; "
        f"weights, inputs and constants, {around or 'not known'}"
    )


def _checked(results: Sequence[RunResult]) -> Iterator[str]:
    def where(result: RunResult) -> str:
        return f" at {binding_text(result.binding)}" if len(results) > 1 else ""

    for result in (r for r in results if r.unused is not None):
        yield f"the plan was not used{where(result)}, it needs {result.unused}: there is nothing to compare"
    checked = [r for r in results if r.checked]
    different = [r for r in checked if r.difference is not None]
    for result in different:
        yield f"DIFFERENT from the unplanned module{where(result)}: {result.difference}"
    undetermined = [r for r in checked if r.undetermined is not None]
    for result in undetermined:
        yield f"UNDETERMINED{where(result)}: {result.undetermined}"
        yield "  the unplanned module computes these, too, from memory that nothing has written"
    if checked and not different:
        rest = " in all other elements" if undetermined else ""
        alone = all(r.plan == "none" or (r.plan == "symalloc" and not r.planned) for r in checked)
        more = "; no tensor is planned, so it was compared with itself" if alone else ""
        yield f"the same as the unplanned module{rest}, bit for bit{more}"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 0.01 else f"{seconds * 1e3:.1f} ms"

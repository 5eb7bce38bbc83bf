"""Plans for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from symalloc.planner.memory_plan import Arena, Guard
from symalloc.planner.memory_report.function_report import FunctionReport, MemorySample
from symalloc.planner.memory_report.non_arena import DonatedResult
from symalloc.planner.memory_report.tvm_plan import TvmComparison, TvmPlan
from symalloc.report.quantities import human_bytes, percent, times
from symalloc.size.expr import Expr

MOST_ROWS = 12  # of a table of buffers, kernels, arenas or tensors; all of them are in the JSON
MOST_SUMS = 4  # of the floor
WIDEST = 72  # characters of a formula
WIDEST_CELL = 32


def plans_as_text(summaries: Sequence[FunctionReport]) -> str:
    """A section for each function: arenas, bytes beside the floor, guards, buffers, and what lies outside."""
    return "\n".join("".join(f"{line.rstrip()}\n" for line in _function(s)) for s in summaries)


def _function(summary: FunctionReport) -> Iterator[str]:
    total = summary.planned + len(summary.unplanned) + len(summary.returned) + len(summary.carried)
    carried = f", {len(summary.carried)} carried by inputs" if summary.carried else ""
    yield f"{summary.function}: {summary.planned} of {total} tensors planned{carried}"
    yield from _capped([_arena(arena) for arena in summary.arenas], "arenas")
    if summary.planned:
        yield from _floor(summary)
        yield f"  offsets that are evaluated at each call: {summary.offsets}"
    for guard in summary.guards:
        yield f"  checked {_where(guard)}: {guard.condition}"
    yield from _samples(summary)
    yield from _buffers(summary)
    yield from _outside(summary)
    if summary.comparison is not None:
        yield from _tvm(summary.comparison)


def _capped(lines: Sequence[str], what: str, most: int = MOST_ROWS) -> Iterator[str]:
    """The first lines; how many more there are."""
    yield from lines[:most]
    if len(lines) > most:
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        yield f"{indent}… and {len(lines) - most} more {what}"


def _cut(text: object, width: int) -> str:
    whole = str(text)
    return whole if len(whole) <= width else f"{whole[: width - 1]}…"


# -- the plan ----------------------------------------------------------------------------------------------


def _arena(arena: Arena) -> str:
    late = f", reserved behind `{arena.defined_by.name}`" if arena.defined_by is not None else ""
    return f"  arena on device {arena.device} ({arena.scope}){late}: {_cut(arena.size, WIDEST)} B"


def _floor(summary: FunctionReport) -> Iterator[str]:
    for floor in summary.floor:
        where = f" on device {floor.device} ({floor.scope})" if len(summary.floor) > 1 else ""
        sums = floor.sums
        if len(sums) == 1:
            yield f"  floor{where}: {_cut(sums[0], WIDEST)} B"
        elif len(sums) <= MOST_SUMS:
            yield f"  floor{where}: the largest of {_cut(', '.join(map(str, sums)), WIDEST)} B"
        else:
            yield f"  floor{where}: the largest of {len(sums)} sums of tensors that are live together"


def _where(guard: Guard) -> str:
    return "at entry" if guard.defined_by is None else f"behind `{guard.defined_by.name}`"


def _buffers(summary: FunctionReport) -> Iterator[str]:
    rows = [
        (
            _cut(p.buffer.name if p.buffer.callee is None else f"{p.buffer.callee}()", WIDEST_CELL),
            _cut(p.buffer.size, WIDEST_CELL),
            _cut(p.offset, WIDEST_CELL),
            " ".join(f"[{begin}, {end})" for begin, end in p.buffer.live),
        )
        for p in summary.placements
    ]
    if not rows:
        return
    shown = [("tensor", "bytes", "offset", "live"), *rows[:MOST_ROWS]]
    widths = [max(len(row[i]) for row in shown) for i in range(3)]
    lines = [
        "    " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, [*widths, 0], strict=True)) for row in shown
    ]
    yield "  where the tensors lie:"
    yield lines[0]
    yield from _capped([*lines[1:], *map(str, rows[MOST_ROWS:])], "tensors")


# -- bytes at sample bindings ------------------------------------------------------------------------------

Row = tuple[str, Callable[[MemorySample], str], bool]


def _samples(summary: FunctionReport) -> Iterator[str]:
    samples = summary.samples
    rows = [
        *_headings(samples),
        *((name, [show(s) for s in samples]) for name, show, wanted in _rows(summary) if wanted),
    ]
    if len(rows) == len(_headings(samples)):
        return
    for name, cells in rows:
        yield f"  {name:<21}{''.join(f'{cell:>12}' for cell in cells)}"


def _headings(samples: Sequence[MemorySample]) -> list[tuple[str, list[str]]]:
    names = samples[0].binding if samples else {}
    if not names:
        return [("static", [""] * len(samples))]
    rows = [(f"{name} =", [str(s.binding[name]) for s in samples]) for name in names]
    if any(s.label for s in samples):
        rows.append(
            ("declared bound", [{"bound": "at it", "beyond": "beyond it"}.get(s.label, "") for s in samples])
        )
    return rows


def _rows(summary: FunctionReport) -> list[Row]:
    """The rows of the table, and whether each is wanted."""
    planned = bool(summary.planned)
    theirs = summary.comparison or TvmComparison(bounded=None, unbounded=TvmPlan(problem="not asked"))
    outside = bool(summary.returned or summary.made or summary.unplanned or summary.kernels)
    return [
        ("arena", lambda s: human_bytes(s.arena), planned),
        ("floor", lambda s: human_bytes(s.floor), planned),
        ("arena / floor", lambda s: times(s.ratio), planned),
        ("without reuse", lambda s: human_bytes(s.unshared), planned),
        ("saved by reuse", lambda s: percent(s.saved), planned),
        (
            "the guard",
            lambda s: "refuses" if s.refused else "passes",
            any(s.refused for s in summary.samples),
        ),
        ("TVM, its bounds", _bounded, _has_plan(theirs.bounded)),
        ("TVM, no bounds", lambda s: human_bytes(s.unbounded), _has_plan(theirs.unbounded)),
        ("results", lambda s: human_bytes(s.returned), bool(summary.returned)),
        ("results in inputs", lambda s: human_bytes(s.carried), bool(summary.carried)),
        ("made by calls", lambda s: human_bytes(s.made), bool(summary.made)),
        ("not planned", lambda s: human_bytes(s.unplanned), bool(summary.unplanned)),
        ("kernels' workspace", lambda s: human_bytes(s.workspace), bool(summary.kernels)),
        ("TVM's pool for it", lambda s: human_bytes(s.pool), bool(summary.kernels)),
        ("the whole call", lambda s: human_bytes(s.whole), outside),
        ("the whole / floor", lambda s: times(s.whole_ratio), outside and planned),
    ]


def _bounded(sample: MemorySample) -> str:
    """What TVM reserves at its bounds is too little past them, and nothing stops the call."""
    return "overruns" if sample.label == "beyond" else human_bytes(sample.bounded)


def _has_plan(plan: TvmPlan | None) -> bool:
    return plan is not None and plan.problem is None


# -- outside the arena -------------------------------------------------------------------------------------


def _outside(summary: FunctionReport) -> Iterator[str]:
    if summary.returned:
        sizes = [_bytes(r.nbytes) for r in summary.returned]
        yield from _capped(
            [f"  returned, with memory of its own: {_cut(size, WIDEST)}" for size in sizes], "results"
        )
    carried = [
        f"  carried by the input `{c.input}`, which the caller gives up: `{c.output}`, "
        f"{_cut(_bytes(c.nbytes), WIDEST)}{_of_room(c)}"
        for c in summary.carried
    ]
    yield from _capped(carried, "results in inputs")
    made = [f"  made by a call of `{m.by}`: {_cut(_bytes(m.nbytes), WIDEST)}" for m in summary.made]
    yield from _capped(made, "tensors that calls make")
    left = [
        f"  not planned: `{u.name}` ({_cut(_bytes(u.nbytes), WIDEST)}): {u.reason}" for u in summary.unplanned
    ]
    yield from _capped(left, "tensors that are not planned")
    if summary.kernels:
        yield "  kernels that take workspace of their own while they run:"
        yield from _capped([_kernel(summary, i) for i in _by_size(summary)], "kernels")
    if summary.packed:
        names = ", ".join(f"`{name}`" for name in summary.packed[:MOST_ROWS])
        more = f" and {len(summary.packed) - MOST_ROWS} more" if len(summary.packed) > MOST_ROWS else ""
        yield f"  what packed functions take is not known: {names}{more}"


def _bytes(size: Expr | None) -> str:
    return "size unknown" if size is None else f"{size} B"


def _of_room(carried: DonatedResult) -> str:
    return "" if carried.room == carried.nbytes else f" of {_cut(_bytes(carried.room), WIDEST)}"


def _by_size(summary: FunctionReport) -> list[int]:
    """The kernels, those that are not known first, then the largest at the last sample."""
    at: Mapping[str, int] = summary.samples[-1].binding if summary.samples else {}

    def bytes_of(index: int) -> tuple[bool, int]:
        scratch = summary.kernels[index].scratch
        known = scratch.problem is None and scratch.peak.symbols <= at.keys()
        return known, -scratch.peak.evaluate(at) if known else 0

    return sorted(range(len(summary.kernels)), key=bytes_of)


def _kernel(summary: FunctionReport, index: int) -> str:
    use = summary.kernels[index]
    calls = "once" if use.calls == 1 else f"{use.calls} times"
    if use.scratch.problem is not None:
        return f"    {use.kernel}, called {calls}: not known, {use.scratch.problem}"
    each = " for each worker thread" if use.scratch.parallel else ""
    return f"    {use.kernel}, called {calls}: {_cut(use.scratch.peak, WIDEST)} B{each}"


# -- TVM's own plan ----------------------------------------------------------------------------------------


def _tvm(compared: TvmComparison) -> Iterator[str]:
    plans = [("with the bounds that are declared", compared.bounded), ("without bounds", compared.unbounded)]
    for how, plan in plans:
        if plan is None:
            continue
        if plan.problem is not None:
            yield f"  TVM {how}: {plan.problem}"
            continue
        left = f", and leaves {_count(plan.fresh, 'tensor')} memory of their own" if plan.fresh else ""
        yield f"  TVM {how} reserves {_count(plan.storages, 'storage')}{left}"


def _count(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}" if len(things) == 1 else f"{len(things)} {what}s"

"""Memory plans as text, and the shapes at which they fit a number of bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from symalloc.analysis.dependencies import EdgeKind
from symalloc.analysis.tensor_origin import TensorOrigin
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_plan import Arena, Buffer, Plan, TooLarge
from symalloc.planner.memory_report.call_moments import CallPeak, FunctionGraph, GraphDocument, PeakTensor
from symalloc.planner.memory_report.deployment import Fit, FunctionFit, LargestValue, Sum, Trade
from symalloc.planner.memory_report.function_report import (
    FunctionReport,
    MemorySample,
    TargetReport,
    TvmComparison,
    own_memory,
)
from symalloc.planner.memory_report.non_arena import KernelUse, ShrunkKernel
from symalloc.prover.domain import INT64_MAX, Verdict, counterexample_title
from symalloc.report.quantities import (
    MOST_ROWS,
    at_binding,
    at_most,
    binding_text,
    broken,
    capped,
    columns,
    cut,
    cut_place,
    human_bytes,
    percent,
    times,
)
from symalloc.shown import counted
from symalloc.size.choice import maximum
from symalloc.size.expr import Expr, evaluated, highest

MOST_SUMS = 24  # of the floor
WIDEST = 72  # characters of a formula that is no answer
WIDEST_NAME, WIDEST_CELL = 40, 32
NOTICED = 1.001  # of what a call holds without a plan
WIDTH = 110  # of lines, where no terminal is narrower
MOST_FENCES = 6
LABEL, COLUMN = 23, 12  # cells of the table of bytes


def _peak(peak: CallPeak, binding: Mapping[str, int], kernels: tuple[KernelUse, ...]) -> Iterator[str]:
    runs = f", in call {peak.step} of {peak.steps}, `{peak.operator}`" if peak.operator else ""
    yield f"  peak{at_binding(binding)}: {human_bytes(peak.nbytes)} of tensors{runs}"
    rows = []
    for t in peak.tensors[:MOST_ROWS]:
        until = f"{t.until}, idle here" if t.idle and t.until else t.until or ""
        until = "the end: it is returned" if t.kind == "result" else until
        rows.append((_named_tensor(t), human_bytes(t.nbytes), until, cut_place(t.source or "")))
    yield from _table(("tensor", "bytes", "held until", "from"), rows, left=(0, 2, 3))
    rest = peak.tensors[MOST_ROWS:]
    if rest:
        yield f"    … and {len(rest)} more, {human_bytes(sum(t.nbytes for t in rest))}"
    sizes = [use.nbytes for use in kernels if use.name == peak.operator]
    workspace = highest(sizes, binding) if sizes else None
    if workspace:
        yield f"    `{peak.operator}` takes {human_bytes(workspace)} of workspace besides"
    yield f"    {_remedy(peak)}"


def _named_tensor(tensor: PeakTensor) -> str:
    origin = TensorOrigin(operator=tensor.operator or "", variable=tensor.variable or "")
    return cut(f"{tensor.name} ({origin})" if tensor.operator else tensor.name, WIDEST_NAME)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int]) -> list[str]:
    """A table of tensors; the last column has no head where nothing is in it."""
    last = heads[-1] if any(row[-1] for row in rows) else ""
    return [f"    {line}" for line in columns([(*heads[:-1], last), *rows], left)]


def _remedy(peak: CallPeak) -> str:
    """Say what would lower the peak."""
    if peak.remedy is None:
        return "to lower it, several tensors must go: another moment holds as much without any one of them"
    found = next(tensor for tensor in peak.tensors if tensor.name == peak.remedy.name)
    left = f"without {_named_tensor(found)} it is {human_bytes(peak.remedy.without)}"
    if found.kind == "result":
        if peak.remedy.alias is not None:
            return f"{left}: the caller can donate an input (--alias {peak.remedy.alias}, tried)"
        return f"{left}, but no input can be donated to this result: {peak.remedy.refused or 'not tried'}"
    if found.idle:
        return f"{left}: it waits for `{found.until}`" if found.until else f"{left}: nothing reads it"
    return f"{left}: `{peak.operator}` itself touches it, so only a smaller or split operator helps"


def target_lines(target: TargetReport) -> Iterator[str]:
    """Yield the lines about the target of a function's plan."""
    said = "tensors share whole storages"
    if target.flavour == "arena":
        said = f"{target.offset_kernels} of {target.kernels} kernels take a tensor at an offset"
    elif not target.shared:
        said += ", as no kernel can read and write tensors of one buffer there"
    yield f"  target {target.name}: {said}"
    if target.grounded:
        starts = "1 tensor starts a storage"
        if target.grounded > 1:
            starts = f"{target.grounded} tensors start a storage each"
        yield f"  {starts}, as more than kernels looks there and data is a mere handle"
    if not target.generated:
        yield f"  this build of TVM generates no code for {target.name}: planned and linted only"
    elif target.present:
        yield "  planned and linted; `symalloc run` runs on the CPU only"
    else:
        yield "  planned and linted; not run: this machine has no such device"
    if target.kept is not None:
        yield (
            f"  TVM's allocator on {target.name} keeps a block for each size that an arena ever had:"
            f" {human_bytes(target.kept)} after a call at each of these sizes;"
            " --bounds reserve asks for one size"
        )


def plans_as_text(reports: Sequence[FunctionReport], width: int | None = None) -> str:
    """Return a section for each function: arenas, bytes beside the floor, guards, buffers, other memory.

    Formulas of arenas, floors and guards are broken into lines of at most `width` characters, and the table
    of bytes into tables.
    """
    wide = WIDTH if width is None else min(width, WIDTH)
    return "\n".join("".join(f"{line.rstrip()}\n" for line in _function(s, wide)) for s in reports)


def _function(report: FunctionReport, width: int) -> Iterator[str]:
    plan, donated = report.plan, report.outside.donated
    planned = sum(not p.buffer.returned for p in report.placements)
    total = planned + len(report.unplanned) + len(report.outside.returned) + len(donated)
    more = f", {len(donated)} in donated inputs" if donated else ""
    yield f"{plan.function}: {planned} of {total} tensors planned{more}"
    if report.storages_before:
        kept = counted(report.storages_before, "storage")
        yield f"  planned before: {kept} of the module's own, counted in the whole call"
    yield from _arenas(plan, width)
    if planned:
        yield from (_broken(floor, width) for floor in _floor(report))
        yield f"  offsets that are evaluated at each call: {report.offsets}"
    for fallback in plan.fallbacks:
        ratio = f"up to {at_most(fallback.ratio)} of the floor at shapes that were looked at"
        yield _broken(f"  {ratio}: {fallback.reason}", width)
    large = [_too_large(one) for one in plan.too_large]
    yield from (_broken(line, width) for line in capped(large, "sizes that one buffer cannot hold"))
    if plan.picked:
        yield _broken(f"  memory is {plan.picked}", width)
    if plan.pieces:
        yield _broken(f"  in pieces: {plan.pieces}", width)
    if plan.order_cost is not None:
        yield f"  order: {plan.order}; safe under any order costs {plan.order_cost:+.1%} of a call"
    yield from _fences(report.graph)
    yield from _guards(plan, width)
    yield from _samples(report, width)
    yield from (_broken(told, width) for told in _above_unplanned(report))
    for sample in report.samples if report.asked else ():
        if sample.peak is not None and sample.peak.tensors:
            yield from _peak(sample.peak, sample.binding, report.outside.kernels)
    yield from _buffers(report)
    yield from _outside(report)
    if report.target is not None:
        yield from (_broken(line, width) for line in target_lines(report.target))
    if report.comparison is not None:
        yield from _tvm(report.comparison)


def _fences(graph: FunctionGraph | None) -> Iterator[str]:
    """Yield what calls in another order than that of the text have to wait for."""
    if graph is None:
        return
    fences = [edge for edge in graph.edges if edge.kind is EdgeKind.FENCE]
    names = [f"call {node.number}, {node.operator}" for node in graph.nodes]
    lines = [f"    {names[e.target]}, waits for {names[e.source]} ({e.names[0]})" for e in fences]
    if lines:
        yield f"  {counted(len(fences), 'fence')} for calls in another order than the function's:"
        yield from capped(lines, "fences", MOST_FENCES)


def _broken(line: str, width: int) -> str:
    """Break a line between words; what follows is indented."""
    return broken(line, width, margin=len(line) - len(line.lstrip()) + 4)


# -- the plan ----------------------------------------------------------------------------------------------


def plan_text(plan: Plan) -> str:
    """Return the arenas of a plan with their formulas, and what is checked."""
    return "\n".join((repr(plan), *_arenas(plan, WIDTH), *_guards(plan, WIDTH)))


def _arenas(plan: Plan, width: int) -> Iterator[str]:
    several = len(plan.arenas) > 1
    arenas = [_arena(arena, number if several else None) for number, arena in enumerate(plan.arenas, 1)]
    yield from (_broken(line, width) for line in capped(arenas, "arenas"))


def _guards(plan: Plan, width: int) -> Iterator[str]:
    for guard in plan.guards:
        why = ", as the function declares" if guard.declared else ""
        where = "at entry" if guard.defined_by is None else f"behind `{guard.defined_by.name}`"
        yield _broken(f"  checked {where}: {guard.condition}{why}", width)


def _arena(arena: Arena, number: int | None) -> str:
    late = f", reserved behind `{arena.defined_by.name}`" if arena.defined_by is not None else ""
    late = ", given by the caller" if arena.given else late
    where = f"on device {arena.device} ({arena.scope}){late}"
    if arena.result is not None:
        where = f"in the memory of the result `{arena.result.name}`"
    why, further = "", arena.further
    if further is not None:
        amount = f": {human_bytes(further.saves)}{at_binding(further.at)}" if further.saves else ""
        why = f"; apart, as {further.reason}{amount}"
    return f"  arena {'' if number is None else f'{number} '}{where}: {arena.size} B{why}"


def _too_large(one: TooLarge) -> str:
    alike = f" and {counted(one.alike - 1, 'tensor')} alike" if one.alike > 1 else ""
    where = at_binding(one.at)
    return f"  more than {human_bytes(one.limit)} in one buffer: `{one.name}`{alike}, {one.size} B{where}"


def _floor(report: FunctionReport) -> Iterator[str]:
    sizes = [arena.size for arena in report.plan.arenas]
    for floor in report.floor:
        where = f" on device {floor.device} ({floor.scope})" if len(report.floor) > 1 else ""
        sums = floor.sums
        if len(sums) > MOST_SUMS:
            yield f"  floor{where}: the largest of {len(sums)} sums of tensors that are live together"
        elif len(sizes) == 1 and maximum(*sums) == sizes[0]:
            yield f"  floor{where}: the same"
        else:
            largest = "" if len(sums) == 1 else "the largest of "
            yield f"  floor{where}: {largest}{', '.join(map(str, sums))} B"


def _buffers(report: FunctionReport) -> Iterator[str]:
    arenas = report.plan.arenas
    number = {p.buffer.id: index for index, arena in enumerate(arenas, 1) for p in arena.placements}
    rows = [
        (
            cut(_named(p.buffer, report), WIDEST_CELL),
            cut(p.buffer.size, WIDEST_CELL),
            *([str(number[p.buffer.id])] if len(arenas) > 1 else []),
            cut(p.offset, WIDEST_CELL),
            " ".join(f"[{begin}, {end})" for begin, end in p.buffer.live),
            cut_place(report.origin(p.buffer).source),
        )
        for p in report.placements
    ]
    if not rows:
        return
    heads = ("tensor", "bytes", *(["arena"] if len(arenas) > 1 else []), "offset", "live", "from")
    yield "  where the tensors lie:"
    lines = _table(heads, rows[:MOST_ROWS], left=range(len(heads)))
    yield from capped([*lines, *map(str, rows[MOST_ROWS:])], "tensors", MOST_ROWS + 1)


def _named(buffer: Buffer, report: FunctionReport) -> str:
    """Return the name of a buffer with the operator that writes it first."""
    origin = report.origin(buffer)
    return f"{buffer.name} ({origin.operator})" if origin.operator else buffer.name


# -- bytes at sample bindings ------------------------------------------------------------------------------

Row = tuple[str, Callable[[MemorySample], str], bool]


def _samples(report: FunctionReport, width: int) -> Iterator[str]:
    fitting = max(1, (width - LABEL) // COLUMN)
    for first in range(0, len(report.samples), fitting):
        samples = report.samples[first : first + fitting]
        heads = [(f"{name} =", [str(s.binding[name]) for s in samples]) for name in samples[0].binding]
        if any(s.label for s in samples):
            words = {"bound": "reached", "beyond": "exceeded"}
            heads.append(("declared bound", [words.get(s.label or "", "") for s in samples]))
        rows = [(name, [show(s) for s in samples]) for name, show, wanted in _rows(report) if wanted]
        for name, cells in (*(heads or [("static", [""] * len(samples))]), *rows) if rows else ():
            yield f"  {name:<{LABEL - 2}}{''.join(f' {cell:>{COLUMN - 1}}' for cell in cells)}"


def _rows(report: FunctionReport) -> list[Row]:
    """Return the rows of the table, and whether each is wanted."""
    planned, outside = bool(report.placements), report.outside
    theirs = report.comparison or TvmComparison(bounded=None, unbounded=Timeline(problem="not asked"))
    called = bool(report.outcome.planned.steps or report.outcome.unplanned.steps)
    least = any(use.parallel for use in outside.kernels)
    taken = called and bool(outside.kernels or outside.table)

    def whole(sample: MemorySample) -> bool:
        return sample.exact and sample.pool_exact

    return [
        ("arena", lambda s: human_bytes(s.arena), planned),
        ("floor", lambda s: human_bytes(s.floor), planned),
        ("arena / floor", lambda s: times(s.ratio), planned),
        (
            f"{report.outcome.written} in place save" if report.outcome.written else "in place would save",
            lambda s: human_bytes(s.in_place),
            any(s.in_place for s in report.samples),
        ),
        ("without reuse", lambda s: human_bytes(s.unshared), planned),
        ("saved by reuse", lambda s: percent(s.saved), planned),
        (
            "guard",
            lambda s: "falls back" if s.falls_back else "refuses" if s.refused else "passes",
            any(s.refused for s in report.samples),
        ),
        ("results", lambda s: human_bytes(s.returned), bool(outside.returned)),
        ("donated results", lambda s: human_bytes(s.donated), bool(outside.donated)),
        ("made by calls", lambda s: human_bytes(s.made), bool(outside.made)),
        ("unplanned", lambda s: human_bytes(s.unplanned), bool(report.unplanned)),
        ("whole call", lambda s: _bounded(s.call, s.known_call, exact=s.exact), called),
        ("  without a plan", lambda s: _bounded(s.call_unplanned, s.known_unplanned), called),
        ("  ours / unplanned", lambda s: times(s.call_ratio), called),
        (
            "  TVM, its bounds",  # too little past them, and nothing stops the call
            lambda s: "overruns" if s.label == "beyond" else human_bytes(s.call_bounded),
            theirs.bounded is not None and theirs.bounded.problem is None,
        ),
        ("  TVM, no bounds", lambda s: human_bytes(s.call_unbounded), theirs.unbounded.problem is None),
        ("workspace", lambda s: _bounded(s.workspace, least=least), bool(outside.kernels)),
        (
            "workspace pool",
            lambda s: _bounded(s.pool, least=least, exact=s.pool_exact),
            bool(outside.kernels),
        ),
        ("table of sizes", lambda s: human_bytes(s.table), bool(outside.table)),
        ("with pool and table", lambda s: _bounded(s.whole, least=least, exact=whole(s)), taken),
        *_device_rows(report.graph),
        ("and the last result", lambda s: _bounded(s.further, least=least, exact=whole(s)), called),
    ]


def _device_rows(graph: FunctionGraph | None) -> Iterator[Row]:
    """Yield the rows of each of several devices."""

    def row(name: str, sums: Sequence[Expr] | None) -> Row:
        return name, lambda s: human_bytes(None if sums is None else highest(sums, s.binding)), True

    for one in graph.devices if graph is not None and len(graph.devices) > 1 else ():
        for name, sums in (("arenas", one.arenas), ("results", one.results), ("call", one.call)):
            yield row(f"device {one.device}, {name}", sums)


def gain_text(sample: MemorySample) -> str:
    """Say in one sentence what a call holds at most, beside calls without a plan and with TVM's, as the map
    says it.
    """
    where = f"At {binding_text(sample.binding)} a" if sample.binding else "A"
    if sample.refused and not sample.falls_back:
        return f"{where} call is refused."
    if sample.call is None:
        known = "" if sample.known_call is None else f"at least {human_bytes(sample.known_call)}, and "
        return f"{where} call holds {known}not all of it is known."
    tvm = sample.call_unbounded
    if sample.call_bounded is not None and sample.label != "beyond":
        tvm = sample.call_bounded
    others = (("without a plan", sample.call_unplanned), ("with TVM's plan", tvm))
    beside = [
        f"; {how} {human_bytes(other)} ({_saved(sample.call, other)})"
        for how, other in others
        if other is not None
    ]
    return f"{where} call holds at most {human_bytes(sample.call)}{''.join(beside)}."


def _saved(ours: int, other: int) -> str:
    change = 100 * (other - ours) / other if other else 0.0
    if abs(change) < 0.05:
        return "the same"
    return f"{change:.1f} % saved" if change > 0 else f"{-change:.1f} % more with ours"


def _above_unplanned(report: FunctionReport) -> Iterator[str]:
    """Yield by how much a call holds more than without a plan, at the worst of the samples, if it does."""
    called = [s for s in report.samples if s.call_ratio is not None and not s.refused]
    worst = max(called, key=lambda s: s.call_ratio or 0.0, default=None)
    if worst is None or (worst.call_ratio or 0.0) < NOTICED:
        return
    where = f",{at_binding(worst.binding)}" if worst.binding else ""
    constant = all(arena.size.as_constant is not None for arena in report.plan.arenas)
    bounded = constant and any(guard.declared for guard in report.plan.guards)
    why = ": memory for the declared bounds is reserved" if bounded else ""
    yield f"  a call holds up to {times(worst.call_ratio)} times what it holds without a plan{where}{why}"


def _bounded(nbytes: int | None, known: int | None = None, *, least: bool = False, exact: bool = True) -> str:
    """Return some bytes, with the sign of a bound where they are one; where not known, those that are."""
    if nbytes is None:
        return human_bytes(known) if known is None else f">= {human_bytes(known)}"
    return f"{'>= ' if least else '' if exact else '<= '}{human_bytes(nbytes)}"


# -- outside the arena -------------------------------------------------------------------------------------


def _outside(report: FunctionReport) -> Iterator[str]:
    outside = report.outside
    sizes = Counter(_bytes(r.nbytes) for r in outside.returned)
    results = [
        f"  result with memory of its own: {size}"
        if count == 1
        else f"  {count} results with memory of their own, each: {size}"
        for size, count in sizes.items()
    ]
    yield from capped(results, "results")
    donated = []
    for d in outside.donated:
        room = "" if d.room == d.nbytes else f" of {_bytes(d.room)}"
        place = f"result in the donated input `{d.input}`: `{d.output}`"
        donated.append(f"  {place}, {_bytes(d.nbytes)}{room}")
    yield from capped(donated, "results in donated inputs")
    made = [f"  made by a call of `{m.by}`: {_bytes(m.nbytes)}" for m in outside.made]
    yield from capped(made, "tensors that calls make")
    left = [f"  unplanned: `{u.name}` ({_bytes(u.nbytes)}): {u.reason}" for u in report.unplanned]
    yield from capped(left, "unplanned tensors")
    if outside.kernels:
        yield "  kernels with workspace:"
        yield from capped(list(_kernels(report)), "kernels")
    yield from _shrunk(outside.shrunk)
    if report.outcome.planned.problem is not None:
        yield "  unknown: what a whole call holds, as functions call themselves, how often depends on data"
    if report.packed:
        names = ", ".join(f"`{name}`" for name in report.packed[:MOST_ROWS])
        more = f" and {len(report.packed) - MOST_ROWS} more" if len(report.packed) > MOST_ROWS else ""
        yield f"  unknown: the memory that packed functions take: {names}{more}"


def _shrunk(kernels: Sequence[ShrunkKernel]) -> Iterator[str]:
    """The kernels that were to take less workspace: what that saves, and what stands in the way of more."""
    if not kernels:
        return
    less = [kernel for kernel in kernels if kernel.gone or kernel.planned]
    yield f"  kernels shrunk: {len(less)} of {len(kernels)} that took workspace"
    took = [f"    {k.name}, {counted(k.calls, 'call')}: {_bytes(k.before)} before" for k in less]
    yield from capped(took, "kernels")
    reasons = Counter(why for kernel in kernels for why in kernel.left.values())
    left = [f"    {counted(count, 'buffer')} left: {why}" for why, count in reasons.most_common()]
    yield from capped(left, "reasons")


def _bytes(size: Expr | None) -> str:
    return "size unknown" if size is None else cut(f"{size} B", WIDEST)


def _kernels(report: FunctionReport) -> Iterator[str]:
    """The kernels, unknown ones first, then the largest at the last sample."""
    at: Mapping[str, int] = report.samples[-1].binding if report.samples else {}
    ranked = [(evaluated(use.nbytes, at), use) for use in report.outside.kernels]
    for _, use in sorted(ranked, key=lambda one: (one[0] is not None, -(one[0] or 0))):
        calls = "once" if use.calls == 1 else f"{use.calls} times"
        each = " for each worker thread" if use.parallel else ""
        known = f"{cut(use.nbytes, WIDEST)} B{each}" if use.problem is None else f"unknown, {use.problem}"
        yield f"    {use.name}, called {calls}: {known}"


# -- TVM's own plan ----------------------------------------------------------------------------------------


def _tvm(compared: TvmComparison) -> Iterator[str]:
    plans = [("with the bounds that are declared", compared.bounded), ("without bounds", compared.unbounded)]
    for how, plan in plans:
        if plan is not None and plan.problem is not None:
            yield f"  TVM {how}: {plan.problem}"
        elif plan is not None:
            fresh = own_memory(plan, "tensor")
            left = f", and leaves {counted(len(fresh), 'tensor')} memory of their own" if fresh else ""
            yield f"  TVM {how} reserves {counted(len(own_memory(plan, 'storage')), 'storage')}{left}"


# -- fitting a number of bytes -----------------------------------------------------------------------------


SUM_TITLES: Mapping[Sum, str] = {
    "arenas": "arenas",
    "call": "whole call",
    "again": "a further call, while the machine holds the last result",
    "workspace": "with workspace of kernels and the table of sizes",
    "everything": "with weights, inputs and constants",
}


def fit_lines(fit: FunctionFit) -> Iterator[str]:
    """Yield the conditions under which the memory of a function fits, and the largest symbols."""
    asked = fit.asked
    where = at_binding(asked.values)
    assumed = f", where {' and '.join(map(str, asked.assume))}" if asked.assume else ""
    yield f"{fit.function}: fits {human_bytes(asked.limit)} ({asked.limit} B){where}{assumed}"
    told = fit.sums.values()
    yield from (f"  {SUM_TITLES[what]}: {_fits_when(one)}" for what, one in fit.sums.items())
    found = [dict(_values(one)) for one in told]
    keys = dict.fromkeys(key for each in found for key in each)
    if keys and not all(one.proof.holds for one in told):
        cells = {key: [each.get(key, "-") for each in found] for key in keys}
        heads = ("largest", *fit.sums)
        yield from (f"    {line}" for line in columns([heads, *((key, *cells[key]) for key in keys)]))


def _values(fit: Fit) -> Iterator[tuple[str, str]]:
    """Yield the largest values of symbols, each with what they are of."""
    known = "<= " if fit.unknown is not None else ""
    for one in fit.largest:
        name, _, value = largest_text(one).removeprefix("largest ").partition(": ")
        yield name, "every" if fit.proof.holds else f"{known}{value}" if one.monotone else "?"
    if fit.trade is not None:
        other = " = ".join((fit.trade.other, *fit.trade.alike))
        for step, most in fit.trade.rows:
            yield f"{other} at {fit.trade.symbol} = {step}", _most(most, known)


def exceeding_line(what: str, fit: Fit) -> str:
    """Say that some memory of a function can take more bytes than it may, and at which shape."""
    proof = fit.within or fit.proof
    at = proof.counterexample
    if at is None and proof.unknown:
        why = f": {fit.unknown}" if fit.unknown else " within its bounds"
        return f"{what}: it is not proved to take at most {fit.limit} B{why}"
    where = f": {counterexample_title(proof.smallest)} {binding_text(at)}" if at else ""
    return f"{what} can take more than {fit.limit} B{where}"


def besides_line(report: FunctionReport) -> str:
    """Say that a call takes more than arenas, of which it is not known how much."""
    function, why = report.plan.function, report.outcome.planned.not_known
    return f"`{function}`: a call takes memory besides its arenas, and not all of it is known: {why}"


def _fits_when(fit: Fit) -> str:
    proof, within = fit.proof, fit.within
    if fit.unknown is not None and proof.verdict is not Verdict.ALWAYS_INVALID:
        return f"not proved: {fit.unknown}"
    if proof.holds:
        return "at every shape (proved)"
    if proof.verdict is Verdict.ALWAYS_INVALID:
        return "at no shape (proved)"
    declared = ""
    if within is not None and (within.holds or within.verdict is Verdict.ALWAYS_INVALID):
        declared = f"; at {'every' if within.holds else 'no'} shape within the declared bounds (proved)"
    if proof.precondition is not None:
        return f"{'exactly ' * fit.exact}when {proof.precondition} (proved){declared}"
    at = proof.counterexample
    found = f"; {counterexample_title(proof.smallest)} {binding_text(at)}" if at else ""
    return f"at some shapes, no short condition was found{found}{declared}"


def largest_text(one: LargestValue) -> str:
    """Say what the largest value of a symbol is."""
    said = f"largest {' = '.join((one.symbol, *one.alike))}{at_binding(one.at)}"
    if not one.monotone:
        return f"{said}: unknown, more of it is not proved to take more memory"
    return f"{said}: {'none' if one.value is None else 'any' if one.unbounded else one.value}"


def trade_lines(trade: Trade, known: str) -> Iterator[str]:
    """Yield the table of two symbols."""
    rows = [(trade.symbol, f"largest {' = '.join((trade.other, *trade.alike))}{known}")]
    rows += [(str(value), _most(most)) for value, most in trade.rows]
    yield from columns(rows, left=())


def _most(value: int | None, sign: str = "") -> str:
    return "none" if value is None else "any" if value == INT64_MAX else f"{sign}{value}"


def lane_lines(graphs: GraphDocument) -> Iterator[str]:
    """Yield tables of the time and the memory of calls on several lanes."""
    for one in graphs.functions:
        lanes, binding = one.lanes or (), one.binding or {}
        rows = [["  lanes", "seconds", "bytes alive", "seconds with fences", ""]]
        for row in lanes:
            size, fits = human_bytes(row.nbytes), "fits" if row.fits else "too much"
            rows.append([f"  {row.lanes}", f"{row.seconds:.6f}", size, f"{row.fenced:.6f}", fits])
        most = max((row.lanes for row in lanes if row.fits), default=0)
        head = f"{one.function}{at_binding(binding)}: {counted(most, 'lane')} within the budget"
        yield from (f"{line}\n" for line in (head, *columns(rows)))

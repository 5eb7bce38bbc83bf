"""Sites of lifetimes, and what cannot be verified: who holds memory for how long, what reads it when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, product

from symalloc.analysis.call_expansion import LeftCall
from symalloc.analysis.conflicts import Access
from symalloc.analysis.handles import (
    killed_variables,
    out_of_scope,
    used_variables,
    uses_after_kill,
)
from symalloc.analysis.kernels.coverage import Range
from symalloc.analysis.kernels.uninitialized import (
    MemoryRange,
    UninitializedRange,
    bytes_of,
    ends_of,
    gap_between,
)
from symalloc.analysis.regions import Region, RegionKind, Target
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, region_set
from symalloc.analysis.unwritten_reads import LostRead, UnwrittenRead
from symalloc.linter.function_prover import Passes
from symalloc.linter.sites.site import (
    FunctionContext,
    Site,
    caller_name,
    function_sites,
    name_of,
    not_understood,
    places_in_memory,
    places_of,
)
from symalloc.linter.sites.storages import storages_of
from symalloc.program import ir
from symalloc.program.operands import operands_of, type_of
from symalloc.program.types import extents_of
from symalloc.size.choice import select
from symalloc.size.condition import conjunction
from symalloc.size.expr import ONE, ZERO, Expr, constant

_DEEP = "in calls of itself further down"


@function_sites("construct", expanded=True)
def calls_not_followed(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The calls not written out that write on storages in a way that none of those written out shows.

    They are given one storage twice, or one of a size that those around them were not given.
    """
    expansion = context.expansion
    for point, made in context.analysis.cfg.instructions if expansion is not None and expansion.left else ():
        if isinstance(made, ir.AllocTensor):
            yield from ((point, site) for site in _unknown_storages(context, made))
        elif expansion is not None and made.var in expansion.left:
            yield from ((point, site) for site in _written_storages(context, expansion.left[made.var]))


def _written_storages(context: FunctionContext, left: LeftCall) -> Iterator[Site]:
    """The sites of one call."""
    call, given = left.call, _storages(context, left.call, left.call.arguments)
    around = _storages(context, call, left.repeated) if left.repeated else ()
    summary = context.shared.summaries[call.name]
    for number, storages in enumerate(given):
        if not contains(summary.writes | summary.may_writes, number):
            continue
        others = NO_REGIONS
        for other in (*given[:number], *given[number + 1 :]):
            others |= other
        sized = region_set(n for n in members(storages) if context.points_to.regions[n].nbytes is not None)
        if storages & others:
            what = f"what `{call.name}` writes on {_names(context, storages & others)}, given twice"
            yield not_understood(what)
        elif sized and not (around and storages == around[number]):
            what = f"whether what `{call.name}` places on {_names(context, storages)} fits, {_DEEP}"
            yield not_understood(what)


def _storages(
    context: FunctionContext, call: ir.CallFunction, arguments: Sequence[ir.Operand]
) -> Sequence[RegionSet]:
    """The storages behind each leaf of the arguments."""
    points_to, callee = context.points_to, context.program.functions[call.name]
    leaves = (leaf for _, leaf in points_to.argument_leaves(arguments, callee))
    return [points_to.resolve(leaf.must | leaf.may) & points_to.storages for leaf in leaves]


def _names(context: FunctionContext, storages: RegionSet) -> str:
    names = (context.points_to.regions[number].name for number in members(storages))
    return " or ".join(f"`{name}`" for name in dict.fromkeys(names))


def _unknown_storages(context: FunctionContext, alloc: ir.AllocTensor) -> Iterator[Site]:
    """The sites of a tensor on a storage that comes out of a call which is not written out."""
    assert context.expansion is not None
    for storage in storages_of(context, alloc):
        made = storage.instruction
        if storage.nbytes is None and made is not None and made.var in context.expansion.left:
            what = f"whether `{alloc.var.name}` fits the storage that {_maker(made)} returns"
            yield not_understood(what, places=places_of(storage=made))


def _maker(made: ir.Instruction) -> str:
    return f"`{made.name}`" if isinstance(made, ir.CallFunction) else "a call"


@function_sites("symbol")
def symbols(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The symbols of the function that nothing defines."""
    for name, origin in context.function.symbols.items():
        if origin is ir.Origin.UNDEFINED:
            first = _first_use(context, name)
            found = context.analysis.cfg.points[first].instruction if first is not None else None
            span = found.span if found is not None and found.span is not None else context.function.span
            site = Site(kind="symbol", span=span, relation="defined-nowhere", texts={"symbol": name})
            yield first or 0, site


def _first_use(context: FunctionContext, name: str) -> int | None:
    """The first point that has `name` in an extent, a size or an offset."""
    for index, point in enumerate(context.analysis.cfg.points):
        found = point.instruction
        if found is not None and any(name in expr.symbols for expr in _expressions(found)):
            return index
    return None


def _expressions(instruction: ir.Instruction) -> Iterator[Expr]:
    yield from extents_of(instruction.var.type)
    for operand in operands_of(instruction):
        yield from extents_of(type_of(operand))
    for name in ("size", "offset"):
        value = getattr(instruction, name, None)
        if value is not None:
            yield value
    yield from getattr(instruction, "shape", None) or ()


@function_sites("construct")
def constructs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The constructs of the function that were not understood, once a kind; not what follows from another."""
    for index, found in context.analysis.cfg.of_type(ir.NotUnderstood):
        if found.fault is not None:  # that is an error
            continue
        if not any(isinstance(context.definition(read), ir.NotUnderstood) for read in found.reads):
            yield index, not_understood(found.what)


@function_sites("live-pair", "construct", expanded=True)
def live_pairs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each pair of regions of one root of which one is written while the other is needed; with the
    writing point.

    Where it is not known where one of the two lies, the pair is a construct that is not verified.
    """
    analysis, points_to = context.analysis, context.points_to
    for point, target, index in context.unwritten.overwriting(analysis.live):
        first, second = points_to.regions[index], points_to.regions[target.region]
        site = Site(
            kind="live-pair",
            quantities={**places_in_memory(first, second), "lost": ONE},
            dedup_key=frozenset((index, target.region)),
            resolve=partial(_resolved, context, point, target, index),
        )
        if len(site.quantities) == 5:
            yield point, site
            continue
        for found in islice(_resolved(context, point, target, index, site), 1):
            yield point, _not_followed(found, second if None in (second.offset, second.nbytes) else first)


def _not_followed(pair: Site, unknown: Region) -> Site:
    """The site that says that a pair is not verified, because it is not known where `unknown` lies."""
    first, storage = pair.texts["first"], pair.texts["storage"]
    what = f"`{storage}`" if first == storage else f"`{first}` in `{storage}`"
    where = f"where in `{storage}`" if unknown.name == storage else f"where `{unknown.name}` lies"
    doubt = f"whether {pair.texts['writer']} overwrites {what}, which {pair.texts['reader']} still reads"
    key = (first, storage, pair.texts["writer"])
    return not_understood(f"{doubt}: {where} is not known", dedup_key=key)


def _resolved(context: FunctionContext, point: int, target: Target, index: int, pair: Site) -> Iterator[Site]:
    """The pair on each path on which content is lost, for each part of the two that kernels access."""
    content = context.analysis.content
    for found in context.unwritten.overwritten(point, target, index):
        site = _lost(context, found, pair)
        read, written = content.loads(found.reader, found.first), content.writes(found.writer, found.second)
        for wanted, part in product(read, written):
            lost = part if part.type is not None else MemoryRange(part.region)  # what is unknown writes all
            if found.again or lost.elements.is_scattered:
                yield from _rewritten(site, wanted, lost, found.again)
                continue
            for (first, sure), (second, certain) in product(_ranges(wanted), _ranges(lost)):
                doubt = None if sure and certain else _another_part(site)
                yield replace(
                    site,
                    quantities={**site.quantities, **_places(first=first, second=second)},
                    uncertainty=site.uncertainty or doubt,
                )


def _another_part(site: Site) -> str:
    return f"what {site.texts['reader']} reads may be another part than what is overwritten"


def _places(**ranges: Range | None) -> Mapping[str, Expr]:
    """The quantities of ranges of bytes; those that are known."""
    known = {name: place for name, place in ranges.items() if place is not None}
    return {
        **{f"{name}.offset": place.begin for name, place in known.items()},
        **{f"{name}.nbytes": place.end - place.begin for name, place in known.items()},
    }


def _rewritten(
    site: Site, wanted: MemoryRange, lost: MemoryRange, again: Sequence[MemoryRange]
) -> Iterator[Site]:
    """The pair as far as what is lost is not written anew: by anything, then by what is sure."""
    sure = [part for part in again if part.elements.exact and not part.elements.by_data]
    known = wanted.elements.exact and lost.elements.exact and not lost.elements.by_data
    unknown = f"how much of `{site.texts['first']}` is written anew before is not known"
    found = [(again, None if known else _another_part(site))]
    for parts, doubt in (*found, (sure, unknown)) if len(sure) < len(again) else found:
        gap = gap_between(wanted, parts, lost=lost)
        places = _places(first=bytes_of(wanted), second=bytes_of(lost))
        lacking = {} if gap is None else {"lost": gap.lacking}
        yield replace(
            site,
            quantities={**site.quantities, **places, **lacking},
            uncertainty=site.uncertainty or doubt or (unknown if gap is None else None),
            passes=None if gap is None else passes_of(gap),
        )


def _ranges(part: MemoryRange) -> Iterator[tuple[Range | None, bool]]:
    """The bytes of a part of a region, or None for all of it; True where each of them is surely accessed.

    Where a part is no range of bytes, it is what lies between its ends, and its ends for sure.
    """
    sure, found = part.elements.exact, bytes_of(part)
    ends = None if part.elements.is_whole or found is not None else ends_of(part)
    if part.elements.is_whole:
        yield None, sure
    elif ends is not None:
        between, first, last = (_if_run(part, one) for one in ends)
        yield from ((between, False), (first, sure), (last, sure))
    elif found is None:
        yield None, False
    else:
        yield _if_run(part, found), sure


def _if_run(part: MemoryRange, found: Range) -> Range:
    """The range, empty for the sizes for which the part is not accessed."""
    return Range(
        found.begin, found.begin + select(conjunction(part.conditions), found.end - found.begin, ZERO)
    )


def _lost(context: FunctionContext, found: LostRead, site: Site) -> Site:
    regions = context.points_to.regions
    first, second = regions[found.first], regions[found.second]
    writer, reader = context.instruction(found.writer), context.instruction(found.reader)
    return replace(
        site,
        texts={
            **alias_at(context, found.reader, first),
            "first": first.name,
            "second": second.name,
            "storage": regions[first.root].name,
            "writer": caller_name(writer),
            "reader": caller_name(reader),
        },
        places=places_of(
            first=first.instruction,
            second=second.instruction,
            reader=reader if reader is not writer else None,
        ),
        uncertainty=_doubt(context, found),
        path=found.path,
        until=found.reader,
    )


def _doubt(context: FunctionContext, found: LostRead) -> str | None:
    """Why it is not certain that content is lost; None where it is."""
    points_to, unwritten = context.points_to, context.unwritten
    if found.certain:
        if unwritten.base_of(found.first).number == unwritten.base_of(found.second).number:
            return "the two are views of one tensor, and may be meant to share its bytes"
        return None if found.decided else "there are too many paths to look at"
    related = points_to.family(RegionSet(1 << found.first | 1 << found.second))
    for one in points_to.may_returns:
        if points_to.resolve(one.regions) & related:
            return f"`{one.name}` may return its argument"
    left = {} if context.expansion is None else context.expansion.left
    for point in (found.writer, found.reader):
        call = context.instruction(point)
        if isinstance(call, ir.CallFunction) and call.var in left:
            return f"what `{call.name}` does is not followed into its further calls of itself"
    return "an alias is not certain"


def alias_at(context: FunctionContext, point: int, region: Region) -> Mapping[str, str]:
    """The text `alias`: the variable through which `point` reads `region`, unless it was bound to that."""
    points_to = context.points_to
    family = points_to.family(RegionSet(1 << region.number))
    for var in context.analysis.cfg.points[point].uses:
        if points_to.regions_of(var) & family & ~points_to.storages:
            return {"alias": f"`{var.name}`"} if var is not region.var else {}
    return {}


@function_sites("use", "kill")
def handle_faults(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Uses and kills of variables that are killed, and uses of variables out of scope."""
    killed = ((fault, places_of(kill=fault.earlier)) for fault in uses_after_kill(context.paths))
    unknown = ((fault, places_of(allocation=fault.earlier)) for fault in out_of_scope(context.paths))
    for fault, places in chain(killed, unknown):
        user = context.instruction(fault.point)
        site = Site(
            kind="kill" if fault.kind == "double-kill" else "use",
            relation=fault.kind,
            texts={
                "variable": name_of(fault.var),
                "user": "the function's result" if user is None else caller_name(user),
            },
            places=places,
            path=fault.path,
        )
        yield fault.point, site


@function_sites("allocation")
def leaks(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Storages and tensors that are allocated and never used, or never killed where the function kills
    others.
    """
    cfg = context.analysis.cfg
    used, killed = used_variables(cfg), killed_variables(cfg)
    freed: RegionSet | None = None
    allocations: Sequence[tuple[int, ir.AllocStorage | ir.AllocTensor]]
    allocations = cfg.of_type(ir.AllocStorage, ir.AllocTensor)
    for index, made in allocations:
        relation = "never-used" if made.var not in used else "never-killed"
        if relation == "never-killed":
            if not killed or made.var in killed:
                continue
            freed = _escaping(context) | context.regions_of(killed) if freed is None else freed
            if context.regions_of((made.var,)) & freed:
                continue
        kind = "storage" if isinstance(made, ir.AllocStorage) else "tensor"
        texts = {"variable": made.var.name, "kind": kind}
        yield index, Site(kind="allocation", relation=relation, texts=texts)


def _escaping(context: FunctionContext) -> RegionSet:
    """The regions that the function's result points to, and what they are parts of."""
    found = NO_REGIONS
    for target in context.points_to.result_targets():
        found |= context.points_to.ancestors[target.region]
    return found


@function_sites("result")
def unsafe_results(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Results of a function called from outside that lie on a storage which outlives the call.

    Doubtful unless the storage is known to be kept: a caller may hand over another one each time.
    """
    if context.function.private:
        return
    points_to, last = context.points_to, len(context.analysis.cfg.points) - 1
    targets = {t.region: t.path for t in points_to.result_targets() if t.certain}
    for region, path in ((points_to.regions[number], path) for number, path in targets.items()):
        root = points_to.regions[region.root]
        outlives, doubt = _kept_elsewhere(root)
        if region.kind is RegionKind.TENSOR and outlives:
            site = Site(
                kind="result",
                instruction=region.instruction,
                relation="views-reused-memory",
                texts={"variable": region.name, "storage": root.name},
                uncertainty=doubt,
                path=path,
            )
            yield last, site


def _kept_elsewhere(root: Region) -> tuple[bool, str | None]:
    """True where memory comes from outside the function, or is kept from call to call; and the reason for
    which the next call may not use it.
    """
    match root.instruction:
        case ir.CallPacked(name=name):
            return True, f"`{name}` may hand out new memory at each call"
        case ir.CallFunction(kept=True):
            return True, None
    return root.external, f"the next call may be given another `{root.name}`"


@function_sites("donated-input")
def overwritten_inputs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find results that are views of a parameter which is read behind a write of the result.

    Of several such reads of one result it is the surest fault; each comes with its program point.
    """
    points_to = context.points_to
    for target in points_to.result_targets():
        view = points_to.regions[target.region]
        if view.kind is RegionKind.VIEW and points_to.regions[view.root].kind is RegionKind.PARAMETER:
            pairs = context.conflicts.stale_reads(target)
            sites = [(_uncertainty(context, write, read, target), write, read) for write, read in pairs]
            sites.sort(key=lambda found: (found[0] is not None, found[2].point, found[1].point))
            for uncertainty, write, read in sites[:1]:
                yield read.point, _donated_site(context, view, write, read, uncertainty)


def _uncertainty(context: FunctionContext, write: Access, read: Access, target: Target) -> str | None:
    """Why it may be no fault; None where it surely is."""
    writer, view = caller_name(context.instruction(write.point)), context.points_to.regions[target.region]
    if not (write.certain and read.certain and target.certain):
        return "an alias is not certain"
    if write.point == read.point:
        return f"{writer} may have read each element before it overwrites it"
    rewritten = context.analysis.effects[write.point].must_defs & context.points_to.ancestors[view.number]
    if context.instruction(read.point) is None or not rewritten:
        return f"{writer} may be meant to update `{context.points_to.regions[view.root].name}` in place"
    return None


def _donated_site(
    context: FunctionContext, view: Region, write: Access, read: Access, uncertainty: str | None
) -> Site:
    root = context.points_to.regions[view.root]
    writer, reader = context.instruction(write.point), context.instruction(read.point)
    return Site(
        kind="donated-input",
        instruction=writer if reader is None else None,
        quantities={} if view.nbytes is None else {"output.nbytes": view.nbytes},
        unknown="how large the result is, is not known here",
        texts={
            **alias_at(context, read.point, root),
            "output": view.name,
            "input": root.name,
            "writer": caller_name(writer),
            "reader": caller_name(reader),
        },
        places=places_of(output=view.instruction, writer=writer),
        dedup_key=view.number,
        uncertainty=uncertainty,
        path=read.path,
    )


_SLOT_BYTES = constant(8)


@function_sites("read", expanded=True)
def unwritten_reads(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each read of what some path to it has not written, with its program point."""
    reads = context.unwritten
    for point, target, doubtful in reads.candidates():
        if context.instruction(point) is None and _left_to_callers(context, target):
            continue
        if doubtful and reads.is_workspace(target.region):
            continue
        for found in reads.on_paths(point, target, doubtful=doubtful):
            yield point, _read_site(context, found)


@function_sites("read")
def unwritten_slots(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each read of a slot of a shape heap that no path to it has written, with its program point."""
    for point, made in context.analysis.cfg.of_type(ir.NotUnderstood):
        if made.fault is not None and made.fault.size is None:
            yield (
                point,
                Site(
                    kind="read",
                    quantities={"lacking": _SLOT_BYTES},
                    texts={
                        "tensor": f"slot {made.fault.slot}",
                        "reader": f"`{made.var.name}`",
                        "what": "a slot of the shape heap, which nothing has written before",
                    },
                ),
            )


def _left_to_callers(context: FunctionContext, target: Target) -> bool:
    """True if a result is memory of which nothing at all is written, and callers are there to fill it: those
    of the module, or those of a function that gives memory out and does nothing else.
    """
    if any(context.unwritten.writes_to(target.region)):
        return False
    return context.function.private or context.analysis.called or context.unwritten.only_allocates


def _read_site(context: FunctionContext, found: UnwrittenRead) -> Site:
    region, later = context.points_to.regions[found.region], _later_writer(context, found)
    reader = caller_name(context.instruction(found.reader))
    texts = {"tensor": region.name, "reader": reader, "what": _what(found)}
    return Site(
        kind="read",
        quantities={"lacking": found.gap.lacking},
        texts=texts | ({} if later is None else {"later": caller_name(later)}),
        places=places_of(allocation=region.instruction, later=later),
        sized=True,
        passes=passes_of(found.gap),
        shown_only=found.gap.elements is not None,
        estimate=found.gap.elements is not None and not found.gap.elements.exact,
        uncertainty=_doubt_of_read(found, reader),
        path=found.path,
        until=found.reader,
        dedup_key=("read", region.number),
    )


def passes_of(gap: UninitializedRange) -> Passes | None:
    """The elements among which a gap is looked for, as if a loop counted them."""
    among = gap.elements
    if among is None:
        return None
    return Passes(among.conditions, among.counters)


def _doubt_of_read(found: UnwrittenRead, reader: str) -> str | None:
    """Why it may be no fault; None where it surely is."""
    if found.doubtful:
        return f"{reader} may look at no element of it"
    if found.left_by is not None:
        return f"it finds what `{found.left_by.name}` left there, another view of the same bytes"
    if found.gap.by_data:
        return "which elements of it are written depends on data"
    if found.gap.idle:
        return "it is written in full unless a kernel has no elements to go through"
    return None if found.decided else "there are too many paths to look at"


def _what(found: UnwrittenRead) -> str:
    """The words for what is not written: all of it, or all but a part."""
    if not found.gap.written:
        return "which nothing has written before"
    return f"of which only {found.gap.written} are written before"


def _later_writer(context: FunctionContext, found: UnwrittenRead) -> ir.Instruction | None:
    """The first instruction behind the reader that writes the region: the two may stand in wrong order."""
    reads = context.unwritten
    for write in reads.writes_to(found.region):
        same = contains(context.points_to.ancestors[found.region], write.stretch.region.number)
        if write.point > found.reader and same:
            return context.instruction(write.point)
    return None


@function_sites("construct", expanded=True)
def overwritten_while_kept(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find tensors that a packed function holds on to, or may, and whose memory others write.

    Where it only may, it matters if such a function is called behind the write, which may read what is lost.
    """
    keepers = _keepers(context)
    for point, keeper in keepers:
        kept = context.points_to.resolve(context.analysis.effects[point].captures)
        for number in members(kept & ~context.points_to.storages):
            region = context.points_to.regions[number]
            readers = ((context.points_to.cfg.exit, keeper),) if keeper.contract.keeps else keepers
            found = _lost_while_kept(context, point, region, readers)
            if found is not None:
                write, reader = found
                writer = caller_name(context.instruction(write.point))
                holds, then = "may hold", f"before `{reader}` may read it"
                if keeper.contract.keeps:
                    holds, then = "holds", "afterwards"
                what = (
                    f"`{keeper.name}` {holds} on to `{region.name}`, whose memory {writer} overwrites {then}"
                )
                more = {"path": write.path, "until": write.point, "dedup_key": (point, number)}
                yield point, not_understood(what, **more)


def _keepers(context: FunctionContext) -> Sequence[tuple[int, ir.CallPacked]]:
    """The calls of packed functions that keep an argument, or may: they are impure, of unknown effect, and no
    library's.

    A library is given memory without content, among other things, and fills it.
    """
    return [
        (point, call)
        for point, call in context.analysis.cfg.of_type(ir.CallPacked)
        if call.contract.keeps or (call.may_capture and not call.pure and not _fills(context, point))
    ]


def _fills(context: FunctionContext, point: int) -> bool:
    """True if a call is given a tensor that nothing has written so far."""
    points_to, effect = context.points_to, context.analysis.effects[point]
    writes = context.conflicts.accesses.writes.items()
    written = {number for number, first in writes if first[0].point < point}
    empty = (RegionKind.TENSOR, RegionKind.FRESH)
    given = (points_to.regions[number] for number in members(points_to.resolve(effect.reads)))
    return any(r.kind in empty and written.isdisjoint(members(points_to.ancestors[r.number])) for r in given)


def _lost_while_kept(
    context: FunctionContext, keeper: int, region: Region, readers: Sequence[tuple[int, ir.CallPacked]]
) -> tuple[Access, str] | None:
    """A write behind `keeper` of memory that is also `region`'s, and what may read that behind it."""
    conflicts, paths = context.conflicts, context.paths
    for number in members(conflicts.siblings(region.number)):
        for write in conflicts.accesses.writes.get(number, ()):
            shared = write.point > keeper and conflicts.share(region.number, number, write.path, write.point)
            if shared is not False:
                path = paths.at[keeper] | write.path | region.path
                behind = ((p, r.name) for p, r in readers if p > write.point)
                for point, reader in behind:
                    if paths.feasible(path | paths.at[point], point):
                        return write._replace(path=path | paths.at[point]), reader
    return None

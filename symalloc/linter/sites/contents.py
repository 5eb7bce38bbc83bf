"""Sites of content: reads of what memory has lost to another tensor, or never was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product

from symalloc.analysis.dependencies import Collision, HappensBefore, dependency_graph, placed_together
from symalloc.analysis.kernels.uninitialized import MemoryRange, bytes_of, gap_between
from symalloc.analysis.misuses import LostRead, UnwrittenRead
from symalloc.analysis.regions import Region, Target
from symalloc.analysis.sets import RegionSet, contains
from symalloc.linter.sites.site import (
    FunctionContext,
    Site,
    alias_at,
    caller_name,
    function_sites,
    not_understood,
    places_in_memory,
    places_of,
)
from symalloc.program import ir
from symalloc.size.choice import select
from symalloc.size.condition import conjunction
from symalloc.size.expr import ONE, ZERO, Expr, constant

_SLOT_BYTES = constant(8)
_SHOWN = 6  # dispatches up to the one that overwrites


@function_sites("live-pair", "construct", expanded=True)
def live_pairs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each pair of regions of one root of which one is written while the other is needed; with the
    writing point.

    Where it is not known where one of the two lies, the pair is a construct that is not verified.
    """
    points_to = context.points_to
    for point, target, index in context.unwritten.overwriting():
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
    for found in context.unwritten.overwritten(point, target, index):
        yield from _in_parts(context, found, pair)


def _in_parts(context: FunctionContext, found: LostRead, pair: Site) -> Iterator[Site]:
    """The pair for each part of the two that kernels access."""
    content, site = context.analysis.content, _lost(context, found, pair)
    read, written = content.loads(found.reader, found.first), content.writes(found.writer, found.second)
    for wanted, part in product(read, written):
        lost = part if part.type is not None else MemoryRange(part.region)  # what is unknown writes all
        if found.again or _is_by_elements(wanted, lost):
            yield from _rewritten(site, wanted, lost, found.again)
            continue
        sure, places = wanted.elements.exact and lost.elements.exact, _places(first=wanted, second=lost)
        yield replace(
            site,
            quantities={**site.quantities, **places},
            uncertainty=site.uncertainty or (None if sure else _another_part(site)),
        )


def _is_by_elements(wanted: MemoryRange, lost: MemoryRange) -> bool:
    """True if two parts are held against each other element by element: where one is no range of bytes."""
    if lost.elements.is_scattered or wanted.elements.points is not None:
        return True
    return any(bool(part.axes) and bytes_of(part) is None for part in (wanted, lost))


def _another_part(site: Site) -> str:
    return f"what {site.texts['reader']} reads may be another part than what is overwritten"


def _places(**parts: MemoryRange) -> Mapping[str, Expr]:
    """The quantities of parts that are ranges of bytes, empty for sizes at which they are not accessed."""
    found: dict[str, Expr] = {}
    for name, part in parts.items():
        place = None if part.elements.is_whole else bytes_of(part)
        if place is not None:
            nbytes = select(conjunction(part.conditions), place.end - place.begin, ZERO)
            found |= {f"{name}.offset": place.begin, f"{name}.nbytes": nbytes}
    return found


def _rewritten(
    site: Site, wanted: MemoryRange, lost: MemoryRange, again: Sequence[MemoryRange]
) -> Iterator[Site]:
    """The pair as far as what is lost is not written anew: by anything, then by what is sure."""
    sure = [part for part in again if part.elements.exact and not part.elements.by_data]
    read = wanted.elements.exact or wanted.elements.points is not None
    known = read and lost.elements.exact and not lost.elements.by_data
    unknown = f"how much of `{site.texts['first']}` is written anew before is not known"
    found = [(again, None if known else _another_part(site))]
    for parts, doubt in (*found, (sure, unknown)) if len(sure) < len(again) else found:
        gap = gap_between(wanted, parts, lost=lost)
        places = _places(first=wanted, second=lost)
        lacking = {} if gap is None else {"lost": gap.lacking}
        yield replace(
            site,
            quantities={**site.quantities, **places, **lacking},
            uncertainty=site.uncertainty or doubt or (unknown if gap is None else None),
            passes=None if gap is None else gap.passes,
        )


def _lost(context: FunctionContext, found: LostRead, site: Site) -> Site:
    regions = context.points_to.regions
    first, second = regions[found.first], regions[found.second]
    writer, reader = context.instruction(found.writer), context.instruction(found.reader)
    return replace(
        site,
        texts={
            **site.texts,
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
        until=max(found.writer, found.reader),
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


@function_sites("unordered-pair")
def unordered_pairs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each pair of tensors on one storage of which one is lost in a run that the order asked for permits, and
    the order of the text does not; with the point that writes the other.
    """
    if context.shared.order == "total":
        return
    graph = dependency_graph(context.analysis)
    relation = HappensBefore(graph=graph, order=context.shared.order)
    for pair in placed_together(graph):
        found = relation.collisions(*pair)
        if found and not found[0].in_order:
            first, second = (context.points_to.regions[number] for number in found[0][:2])
            site = Site(
                kind="unordered-pair",
                quantities={**places_in_memory(first, second), "lost": ONE},
                unknown="it is not known where they lie",
                dedup_key=frozenset(pair),
                resolve=partial(_unordered, context, relation, found),
            )
            yield min(min(one.writer.point, one.reader.point) for one in found), site


def _unordered(
    context: FunctionContext, relation: HappensBefore, found: Sequence[Collision], pair: Site
) -> Iterator[Site]:
    """The pair in each run in which one of the two is lost, for each part of them that kernels access."""
    instructions, regions = relation.graph.instructions, context.points_to.regions
    for one in (one for one in found if not one.in_order):
        order = relation.showing(one)
        until = order.index(one.writer.dispatch) + 1
        shown = [caller_name(instructions[n]) for n in order[:until]]
        late = {t.point for t in relation.graph.touches[one.lost] if t.dispatch not in order[:until]}
        writes = context.unwritten.writes_to(one.reader.region)
        again = [w for w in writes if w.point in late and w.point < one.reader.point]
        where = one.reader.region, one.writer.region, one.writer.point, one.reader.point, one.path
        site = replace(
            pair,
            instruction=context.instruction(one.writer.point),
            quantities={**places_in_memory(*(regions[number] for number in where[:2])), "lost": ONE},
            texts={"shown": ", ".join(shown[-_SHOWN:])},
        )
        for lost in context.unwritten.lost(*where, again, certain=one.certain):
            yield from _in_parts(context, lost, site)


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
    return Site(
        kind="read",
        quantities={"lacking": found.gap.lacking},
        sized=True,
        passes=found.gap.passes,
        shown_only=found.gap.passes is not None,
        estimate=found.gap.estimate,
        idle=found.gap.idle,
        path=found.path,
        until=found.reader,
        dedup_key=("read", found.region),
        resolve=partial(_in_words, context, found),
    )


def _in_words(context: FunctionContext, found: UnwrittenRead, site: Site) -> Iterator[Site]:
    region, later = context.points_to.regions[found.region], _later_writer(context, found)
    reader = caller_name(context.instruction(found.reader))
    texts = {"tensor": region.name, "reader": reader, "what": _what(found)}
    yield replace(
        site,
        texts=texts | ({} if later is None else {"later": caller_name(later)}),
        places=places_of(allocation=region.instruction, later=later),
        uncertainty=_doubt_of_read(found, reader),
    )


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
    words = found.gap.words
    if not words:
        return "which nothing has written before"
    return f"of which only {words} are written before"


def _later_writer(context: FunctionContext, found: UnwrittenRead) -> ir.Instruction | None:
    """The first instruction behind the reader that writes the region: the two may stand in wrong order."""
    reads = context.unwritten
    for write in reads.writes_to(found.region):
        same = contains(context.points_to.ancestors[found.region], write.stretch.region.number)
        if write.point > found.reader and same:
            return context.instruction(write.point)
    return None

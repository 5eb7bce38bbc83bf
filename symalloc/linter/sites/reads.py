"""Sites of kind `read`: memory that something reads while, on some path, nothing has written it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symalloc.analysis.regions import Region, Target
from symalloc.analysis.sets import contains
from symalloc.analysis.stored_elements import element_index
from symalloc.analysis.unwritten_reads import UnwrittenRead
from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import (
    ConstraintSite,
    FunctionContext,
    Passes,
    Site,
    caller_name,
    places_of,
)
from symalloc.program import ir
from symalloc.program.control_flow import PointKind
from symalloc.program.span import Span
from symalloc.size.expr import constant

_SLOT_BYTES = constant(8)


@function_sites("read", expanded=True)
def unwritten_reads(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each read of what some path to it has not written, with its program point."""
    reads = context.unwritten
    for point, target, doubtful in reads.candidates():
        at_end = context.analysis.cfg.points[point].kind is PointKind.EXIT
        if at_end and _left_to_callers(context, target):
            continue
        for found in reads.on_paths(point, target, doubtful=doubtful):
            yield point, _site(context, found)


@function_sites("read")
def unwritten_slots(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each read of a slot of a shape heap that no path to it has written, with its program point."""
    for point, made in context.analysis.cfg.of_type(ir.NotUnderstood):
        if made.fault is not None and made.fault.size is None:
            yield (
                point,
                ConstraintSite(
                    kind="read",
                    instruction=made,
                    quantities={"lacking": _SLOT_BYTES},
                    texts={
                        "tensor": f"slot {made.fault.slot}",
                        "reader": f"`{made.var.name}`",
                        "what": "a slot of the shape heap, which nothing has written before",
                    },
                ),
            )


def _left_to_callers(context: FunctionContext, target: Target) -> bool:
    """True if a result is memory of which nothing at all is written, and a caller of the module gets it."""
    if any(context.unwritten.writes_to(target.region)):
        return False
    return context.function.private or context.analysis.called


def _site(context: FunctionContext, found: UnwrittenRead) -> Site:
    points, region = context.analysis.cfg.points, context.points_to.regions[found.region]
    point = points[found.reader]
    ends = point.kind is PointKind.EXIT
    later = _later_writer(context, found)
    texts = {
        "tensor": region.name,
        "reader": "the caller" if ends else caller_name(point.instruction),
        "what": _what(found),
    }
    return ConstraintSite(
        kind="read",
        instruction=None if ends else point.instruction,
        span=context.function.result_span if ends else None,
        quantities={"lacking": found.gap.lacking},
        texts=texts | ({} if later is None else {"later": caller_name(later)}),
        places=_places(region, later),
        sized=True,
        passes=_passes(found),
        shown_only=found.gap.elements is not None,
        estimate=found.gap.elements is not None and not found.gap.elements.exact,
        uncertainty=_uncertainty(found, texts["reader"]),
        path=found.path,
        until=found.reader,
        dedup_key=("read", region.number),
    )


def _passes(found: UnwrittenRead) -> Passes | None:
    """The elements among which a gap is looked for, as if a loop counted them."""
    among = found.gap.elements
    if among is None:
        return None
    indices = (element_index(axis).as_symbol or "" for axis in range(len(among.shape)))
    return Passes(among.conditions, tuple(zip(indices, among.shape, strict=True)))


def _uncertainty(found: UnwrittenRead, reader: str) -> str | None:
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


def _places(region: Region, later: ir.Instruction | None) -> Mapping[str, Span]:
    return places_of(allocation=region.instruction, later=later)


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
            return context.analysis.cfg.points[write.point].instruction
    return None

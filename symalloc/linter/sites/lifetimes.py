"""Sites of kinds `live-pair`, `use`, `kill`, `allocation` and `result`: who holds what for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product

from symalloc.analysis.conflicts import ReuseConflict
from symalloc.analysis.gaps import Stretch, bytes_of, ends_of
from symalloc.analysis.handles import (
    HandleFault,
    killed_variables,
    out_of_scope,
    used_variables,
    uses_after_kill,
)
from symalloc.analysis.ranges import Range
from symalloc.analysis.regions import Region, RegionKind, Target
from symalloc.analysis.sets import NO_REGIONS, RegionSet
from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import (
    ConstraintSite,
    FunctionContext,
    RelationSite,
    Site,
    caller_name,
    name_of,
    places_of,
)
from symalloc.program import ir
from symalloc.program.control_flow import PointKind
from symalloc.program.span import Span
from symalloc.size.choice import select
from symalloc.size.condition import conjunction
from symalloc.size.expr import ZERO, Expr


@function_sites("live-pair", "construct", expanded=True)
def live_pairs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Each pair of regions of one root of which one is written while the other is needed; with the
    writing point.

    Where it is not known where one of the two lies, the pair is a construct that is not verified.
    """
    analysis, points_to = context.analysis, context.points_to
    for point, target, index in context.conflicts.candidates(analysis.written, analysis.live):
        first, second = points_to.regions[index], points_to.regions[target.region]
        places = (first.offset, first.nbytes, second.offset, second.nbytes)
        site = ConstraintSite(
            kind="live-pair",
            instruction=context.analysis.cfg.points[point].instruction,
            quantities={n: value for n, value in zip(_PLACES, places, strict=True) if value is not None},
            dedup_key=frozenset((index, target.region)),
            memo_key=places,
            resolve=partial(_resolved, context, point, target, index),
        )
        if None not in places:
            yield point, site
            continue
        for found in islice(_resolved(context, point, target, index, site), 1):
            yield point, _not_followed(found, second if None in places[2:] else first)


def _not_followed(pair: ConstraintSite, unknown: Region) -> Site:
    """The site that says that a pair is not verified, because it is not known where `unknown` lies."""
    first, storage = pair.texts["first"], pair.texts["storage"]
    what = f"`{storage}`" if first == storage else f"`{first}` in `{storage}`"
    where = f"where in `{storage}`" if unknown.name == storage else f"where `{unknown.name}` lies"
    doubt = f"whether {pair.texts['writer']} overwrites {what}, which {pair.texts['reader']} still reads"
    return RelationSite(
        kind="construct",
        instruction=pair.instruction,
        relation="not-understood",
        texts={"what": f"{doubt}: {where} is not known"},
        dedup_key=(first, storage, pair.texts["writer"]),
    )


_PLACES = ("first.offset", "first.nbytes", "second.offset", "second.nbytes")


def _resolved(
    context: FunctionContext, point: int, target: Target, index: int, site: ConstraintSite
) -> Iterator[ConstraintSite]:
    """The pair on each path on which content is lost."""
    for found in context.conflicts.overwrites(point, target, index):
        yield from _in_part(context, found, _lost(context, found, site))


def _in_part(
    context: FunctionContext, found: ReuseConflict, site: ConstraintSite
) -> Iterator[ConstraintSite]:
    """The pair, for each part of the two that kernels read and write, where that is not all of them."""
    content = context.analysis.content
    read, written = content.loads(found.reader, found.first), content.writes(found.writer, found.second)
    for (first, sure), (second, certain) in product(_ranges(read), _ranges(written)):
        places: dict[str, Expr] = {}
        for name, place in (("first", first), ("second", second)):
            if place is not None:
                places |= {f"{name}.offset": place.begin, f"{name}.nbytes": place.end - place.begin}
        doubt = f"what {site.texts['reader']} reads may be another part than what is overwritten"
        yield replace(
            site,
            quantities={**site.quantities, **places},
            uncertainty=site.uncertainty or (None if sure and certain else doubt),
        )


def _ranges(parts: Iterable[Stretch]) -> Iterator[tuple[Range | None, bool]]:
    """The bytes of each part of a region, or None for all of it; True where each of them is surely accessed.

    Where a part is no range of bytes, it is what lies between its ends, and its ends for sure; what is no box
    counts as all.
    """
    for part in parts:
        sure, found = _is_exact(part), bytes_of(part)
        ends = None if part.is_whole or found is not None else ends_of(part)
        if part.is_whole or part.is_scattered:
            yield None, True
        elif ends is not None:
            between, first, last = (_if_run(part, one) for one in ends)
            yield from ((between, False), (first, sure), (last, sure))
        elif found is None:
            yield None, False
        else:
            yield _if_run(part, found), sure


def _if_run(part: Stretch, found: Range) -> Range:
    """The range, empty for the sizes for which the part is not accessed."""
    return Range(
        found.begin, found.begin + select(conjunction(part.conditions), found.end - found.begin, ZERO)
    )


def _is_exact(stretch: Stretch) -> bool:
    return stretch.elements is None or stretch.elements.exact


def _lost(context: FunctionContext, found: ReuseConflict, site: ConstraintSite) -> ConstraintSite:
    regions, points = context.points_to.regions, context.analysis.cfg.points
    first, second = regions[found.first], regions[found.second]
    writer, reader = points[found.writer].instruction, points[found.reader].instruction
    return replace(
        site,
        texts={
            **alias_at(context, found.reader, first),
            "first": first.name,
            "second": second.name,
            "storage": regions[first.root].name,
            "writer": caller_name(writer),
            "reader": "the caller" if points[found.reader].kind is PointKind.EXIT else caller_name(reader),
        },
        places=places_of(
            first=first.instruction,
            second=second.instruction,
            reader=reader if reader is not writer else None,
        ),
        uncertainty=None if found.certain else _doubt(context, found),
        path=found.path,
        until=found.reader,
    )


def _doubt(context: FunctionContext, found: ReuseConflict) -> str:
    """Why it is not certain that content is lost."""
    if found.through:
        return f"`{found.through}` may return its argument"
    left = {} if context.expansion is None else context.expansion.left
    for point in (found.writer, found.reader):
        call = context.analysis.cfg.points[point].instruction
        if isinstance(call, ir.CallFunction) and call.var in left:
            return f"what `{call.name}` does is not followed into its further calls of itself"
    return "an alias is not certain"


def alias_at(context: FunctionContext, point: int, region: Region) -> Mapping[str, str]:
    """The text `alias`: the variable through which `point` reads `region`, unless it was bound to that."""
    points_to = context.points_to
    family = points_to.ancestors[region.number] | points_to.descendants[region.number]
    for var in context.analysis.cfg.points[point].uses:
        if points_to.regions_of(var) & family & ~points_to.storages:
            return {"alias": f"`{var.name}`"} if var is not region.var else {}
    return {}


@function_sites("use", "kill")
def handle_faults(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Uses and kills of variables that are killed, and uses of variables out of scope."""
    for fault in uses_after_kill(context.paths):
        kind = "kill" if fault.kind == "double-kill" else "use"
        yield fault.point, _handle_site(context, kind, fault, places_of(kill=fault.earlier))
    for fault in out_of_scope(context.paths):
        yield fault.point, _handle_site(context, "use", fault, places_of(allocation=fault.earlier))


def _handle_site(context: FunctionContext, kind: str, fault: HandleFault, places: Mapping[str, Span]) -> Site:
    point = context.analysis.cfg.points[fault.point]
    ends = point.kind is PointKind.EXIT
    return RelationSite(
        kind=kind,
        instruction=point.instruction,
        span=context.function.result_span if ends else None,
        relation=fault.kind,
        texts={
            "variable": name_of(fault.var),
            "user": "the function's result" if ends else caller_name(point.instruction),
        },
        places=places,
        path=fault.path,
    )


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
        if made.var not in used:
            yield index, _allocation(made, "never-used")
        elif killed and made.var not in killed:
            freed = _escaping(context) | context.regions_of(killed) if freed is None else freed
            if not context.regions_of((made.var,)) & freed:
                yield index, _allocation(made, "never-killed")


def _allocation(made: ir.AllocStorage | ir.AllocTensor, relation: str) -> Site:
    kind = "storage" if isinstance(made, ir.AllocStorage) else "tensor"
    texts = {"variable": made.var.name, "kind": kind}
    return RelationSite(kind="allocation", instruction=made, relation=relation, texts=texts)


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
        if region.kind is RegionKind.TENSOR and _outlives(root):
            site = RelationSite(
                kind="result",
                instruction=region.instruction,
                relation="views-reused-memory",
                texts={"variable": region.name, "storage": root.name},
                uncertainty=_may_be_fresh(root),
                path=path,
            )
            yield last, site


def _outlives(root: Region) -> bool:
    """True where memory comes from outside the function, or is kept from call to call."""
    match root.instruction:
        case ir.CallPacked():
            return True
        case ir.CallFunction(kept=kept):
            return kept or root.external
    return root.external


def _may_be_fresh(root: Region) -> str | None:
    """Why memory that outlives the call may not be used by the next one; None where it surely is."""
    match root.instruction:
        case ir.CallPacked(name=name):
            return f"`{name}` may hand out new memory at each call"
        case ir.CallFunction(kept=True):
            return None
    return f"the next call may be given another `{root.name}`"

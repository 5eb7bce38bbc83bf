"""Sites of kinds `live-pair`, `use`, `kill`, `allocation` and `result`: who holds what for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from symalloc.analysis.conflicts import ReuseConflict
from symalloc.analysis.handles import (
    HandleFault,
    killed_variables,
    out_of_scope,
    used_variables,
    uses_after_kill,
)
from symalloc.analysis.regions import Region, RegionKind, Target
from symalloc.analysis.sets import NO_REGIONS, RegionSet
from symalloc.linter.sites.site import Scene, Site, caller_name, name_of, places_of
from symalloc.program.control_flow import PointKind
from symalloc.program.model import (
    AllocStorage,
    AllocTensor,
    CallFunction,
    CallPacked,
    Var,
)
from symalloc.program.span import Span

__all__ = ["live_pairs", "unfreed", "unruly", "unsafe_results"]


def live_pairs(scene: Scene) -> Iterator[tuple[int, Site]]:
    """Each pair of regions of one root of which one is written while the other is needed; with the
    writing step.
    """
    analysis, points_to = scene.analysis, scene.points_to
    for step, target, index in analysis.conflicts.candidates(analysis.written, analysis.live):
        first, second = points_to.regions[index], points_to.regions[target.region]
        places = (first.offset, first.nbytes, second.offset, second.nbytes)
        yield (
            step,
            Site(
                kind="live-pair",
                instruction=scene.analysis.cfg.points[step].instruction,
                quantities={n: value for n, value in zip(_PLACES, places, strict=True) if value is not None},
                unknown="the place of one of the two tensors is not known here",
                once=frozenset((index, target.region)),
                key=places,
                settle=partial(_settled, scene, step, target, index),
            ),
        )


_PLACES = ("first.offset", "first.nbytes", "second.offset", "second.nbytes")


def _settled(scene: Scene, step: int, target: Target, index: int, site: Site) -> Site | None:
    """The pair, if there is a path on which content is lost."""
    found = scene.analysis.conflicts.overwrite(step, target, index)
    return None if found is None else _live_pair(scene, found, site)


def _live_pair(scene: Scene, found: ReuseConflict, site: Site) -> Site:
    regions, steps = scene.points_to.regions, scene.analysis.cfg.points
    first, second = regions[found.first], regions[found.second]
    writer, reader = steps[found.writer].instruction, steps[found.reader].instruction
    alias = alias_at(scene, found.reader, first)
    doubt = None
    if not found.certain:
        doubt = f"`{found.through}` may return its argument" if found.through else "an alias is not certain"
    return replace(
        site,
        texts={
            **({"alias": alias} if alias is not None else {}),
            "first": first.name,
            "second": second.name,
            "storage": regions[first.root].name,
            "writer": caller_name(writer),
            "reader": caller_name(reader) if steps[found.reader].kind is not PointKind.EXIT else "the caller",
        },
        places=places_of(
            first=_span(first),
            second=_span(second),
            reader=reader.span if reader is not None and reader is not writer else None,
        ),
        doubt=doubt,
    )


def alias_at(scene: Scene, step: int, region: Region) -> str | None:
    """The variable through which `step` reads `region`, quoted; None where that is the one it was bound
    to.
    """
    points_to = scene.points_to
    family = points_to.ancestors[region.number] | points_to.descendants[region.number]
    for var in scene.analysis.cfg.points[step].uses:
        if points_to.regions_of(var) & family & ~points_to.storages:
            return f"`{var.name}`" if var is not region.var else None
    return None


def unruly(scene: Scene) -> Iterator[tuple[int, Site]]:
    """Uses and kills of variables that are killed, and uses of variables out of scope."""
    cfg = scene.analysis.cfg
    for fault in uses_after_kill(cfg):
        kind = "kill" if fault.kind == "double-kill" else "use"
        killed = fault.earlier.span if fault.earlier is not None else None
        yield fault.point, _handle_site(scene, kind, fault, places_of(kill=killed))
    for fault in out_of_scope(cfg):
        bound = fault.earlier.span if fault.earlier is not None else None
        yield fault.point, _handle_site(scene, "use", fault, places_of(allocation=bound))


def _handle_site(scene: Scene, kind: str, fault: HandleFault, places: Mapping[str, Span]) -> Site:
    step = scene.analysis.cfg.points[fault.point]
    ends = step.kind is PointKind.EXIT
    return Site(
        kind=kind,
        instruction=step.instruction,
        span=scene.function.result_span if ends else None,
        relation=fault.kind,
        texts={
            "variable": name_of(fault.var),
            "user": "the function's result" if ends else caller_name(step.instruction),
        },
        places=places,
    )


def unfreed(scene: Scene) -> Iterator[tuple[int, Site]]:
    """Storages and tensors that are allocated and never used, or never killed where the function kills
    others.
    """
    cfg = scene.analysis.cfg
    used, killed = used_variables(cfg), killed_variables(cfg)
    freed = _escaping(scene) | _regions_of(scene, killed)
    for index, made in cfg.instructions:
        if not isinstance(made, AllocStorage | AllocTensor):
            continue
        if made.var not in used:
            yield index, _allocation(made, "never-used")
        elif killed and made.var not in killed and not _regions_of(scene, (made.var,)) & freed:
            yield index, _allocation(made, "never-killed")


def _allocation(made: AllocStorage | AllocTensor, relation: str) -> Site:
    kind = "storage" if isinstance(made, AllocStorage) else "tensor"
    texts = {"variable": made.var.name, "kind": kind}
    return Site(kind="allocation", instruction=made, relation=relation, texts=texts)


def _escaping(scene: Scene) -> RegionSet:
    """The regions that the function's result points to, and what they are parts of."""
    found = NO_REGIONS
    for target in scene.points_to.result_targets():
        found |= scene.points_to.ancestors[target.region]
    return found


def _regions_of(scene: Scene, variables: Iterable[Var]) -> RegionSet:
    """The regions that some of the variables point to."""
    found = NO_REGIONS
    for var in variables:
        found |= scene.points_to.regions_of(var)
    return found


def unsafe_results(scene: Scene) -> Iterator[tuple[int, Site]]:
    """Results of a function called from outside that lie on a storage which outlives the call.

    Doubtful unless the storage is known to be kept: a caller may hand over another one each time.
    """
    if scene.function.private:
        return
    points_to, last = scene.points_to, len(scene.analysis.cfg.points) - 1
    seen: set[int] = set()
    for target in points_to.result_targets():
        region = points_to.regions[target.region]
        root = points_to.regions[region.root]
        if (
            region.kind is RegionKind.TENSOR
            and _outlives(root)
            and target.certain
            and region.number not in seen
        ):
            seen.add(region.number)
            yield (
                last,
                Site(
                    kind="result",
                    instruction=region.instruction,
                    relation="views-reused-memory",
                    texts={"variable": region.name, "storage": root.name},
                    doubt=_may_be_fresh(root),
                ),
            )


def _outlives(root: Region) -> bool:
    """Whether memory comes from outside the function, or is kept from call to call."""
    match root.instruction:
        case CallPacked():
            return True
        case CallFunction(kept=kept):
            return kept or root.external
    return root.external


def _may_be_fresh(root: Region) -> str | None:
    """Why memory that outlives the call may not be used by the next one; None where it surely is."""
    match root.instruction:
        case CallPacked(name=name):
            return f"`{name}` may hand out new memory at each call"
        case CallFunction(kept=True):
            return None
    return f"the next call may be given another `{root.name}`"


def _span(region: Region) -> Span | None:
    return region.instruction.span if region.instruction is not None else None

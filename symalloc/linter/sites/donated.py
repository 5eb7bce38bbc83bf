"""Sites of kind `donated-input`: results that are views of a parameter, and what reads it after the write.

A caller that donates an input has an output written into its memory.  Whoever reads the input later finds the
output there.  A parameter that is updated in place looks much alike: what its memory held is then meant to be
read anew.  So it takes a kernel that writes every element of the result and reads none to be certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from symalloc.analysis.overwrites import Access, Paths, feasible
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import Region, RegionKind, Target, members, pointees_of
from symalloc.linter.sites.lifetimes import alias_at
from symalloc.linter.sites.site import Scene, Site, caller_name, places_of
from symalloc.program.control_flow import PointKind

__all__ = ["overwritten_inputs"]


def overwritten_inputs(scene: Scene) -> Iterator[tuple[int, Site]]:
    """For each result that is a view of a parameter, the read of that parameter behind a write of the result
    that is most surely a fault; with the reading step.
    """
    points_to, paths = scene.points_to, None
    for target in points_to.targets(*pointees_of(points_to.result)):
        view = points_to.regions[target.region]
        if view.kind is RegionKind.VIEW and points_to.regions[view.root].kind is RegionKind.PARAMETER:
            paths = paths or Paths(points_to, scene.analysis.effects)
            sites = [(_doubt(scene, w, r, target), w, r) for w, r in _pairs(points_to, paths, target)]
            sites.sort(key=lambda found: (found[0] is not None, found[2].step, found[1].step))
            for doubt, write, read in sites[:1]:
                yield read.step, _site(scene, view, write, read, doubt)


def _pairs(points_to: PointsTo, paths: Paths, target: Target) -> Iterator[tuple[Access, Access]]:
    """The writes of a view, each with the reads on its path of what the view is part of."""
    whole = points_to.ancestors[target.region] & ~(1 << target.region)
    writes = _behind_entry(paths.writes, points_to.descendants[target.region])
    reads = _behind_entry(paths.reads, whole)
    root = points_to.regions[target.region].root
    for write in writes:
        for read in reads:
            sides = write.path | read.path | target.path
            if read.step < write.step or not feasible(sides):
                continue
            if not paths.rewritten(root, write.step, read, sides):
                yield write, read


def _behind_entry(table: Mapping[int, Sequence[Access]], regions: int) -> list[Access]:
    return [access for region in members(regions) for access in table.get(region, ()) if access.step >= 0]


def _doubt(scene: Scene, write: Access, read: Access, target: Target) -> str | None:
    """Why it may be no fault; None where it surely is."""
    steps = scene.analysis.cfg.points
    writer, whole = caller_name(steps[write.step].instruction), scene.points_to.regions[target.region].root
    if not (write.certain and read.certain and target.certain):
        return "an alias is not certain"
    if write.step == read.step:
        return f"{writer} may have read each element before it overwrites it"
    covers = scene.analysis.effects[write.step].must_defs & scene.points_to.ancestors[target.region]
    if steps[read.step].kind is PointKind.EXIT or not covers:
        return f"{writer} may be meant to update `{scene.points_to.regions[whole].name}` in place"
    return None


def _site(scene: Scene, view: Region, write: Access, read: Access, doubt: str | None) -> Site:
    steps, root = scene.analysis.cfg.points, scene.points_to.regions[view.root]
    writer, reader = steps[write.step].instruction, steps[read.step].instruction
    ends = steps[read.step].kind is PointKind.EXIT
    alias = alias_at(scene, read.step, root)
    return Site(
        kind="donated-input",
        instruction=writer if ends else reader,
        quantities={} if view.nbytes is None else {"output.nbytes": view.nbytes},
        unknown="how large the result is, is not known here",
        texts={
            **({"alias": alias} if alias is not None else {}),
            "output": view.name,
            "input": root.name,
            "writer": caller_name(writer),
            "reader": "the caller" if ends else caller_name(reader),
        },
        places=places_of(
            output=view.instruction.span if view.instruction is not None else None,
            writer=writer.span if writer is not None else None,
        ),
        once=view.number,
        doubt=doubt,
    )

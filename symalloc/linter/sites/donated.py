"""Sites of kind `donated-input`: results that are views of a parameter, and what reads it after the write.

A caller that donates an input has an output written into its memory.  Whoever reads the input later finds the
output there.  A parameter that is updated in place looks much alike: what its memory held is then meant to be
read anew.  So it takes a kernel that writes every element of the result and reads none to be certain.
"""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.analysis.conflicts import Access
from symalloc.analysis.regions import Region, RegionKind, Target
from symalloc.linter.sites.lifetimes import alias_at
from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import ConstraintSite, FunctionContext, Site, caller_name, places_of
from symalloc.program.control_flow import PointKind


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
                yield read.point, _site(context, view, write, read, uncertainty)


def _uncertainty(context: FunctionContext, write: Access, read: Access, target: Target) -> str | None:
    """Why it may be no fault; None where it surely is."""
    points = context.analysis.cfg.points
    writer, view = caller_name(points[write.point].instruction), context.points_to.regions[target.region]
    if not (write.certain and read.certain and target.certain):
        return "an alias is not certain"
    if write.point == read.point:
        return f"{writer} may have read each element before it overwrites it"
    rewritten = context.analysis.effects[write.point].must_defs & context.points_to.ancestors[view.number]
    if points[read.point].kind is PointKind.EXIT or not rewritten:
        return f"{writer} may be meant to update `{context.points_to.regions[view.root].name}` in place"
    return None


def _site(
    context: FunctionContext, view: Region, write: Access, read: Access, uncertainty: str | None
) -> Site:
    points, root = context.analysis.cfg.points, context.points_to.regions[view.root]
    writer, reader = points[write.point].instruction, points[read.point].instruction
    ends = points[read.point].kind is PointKind.EXIT
    return ConstraintSite(
        kind="donated-input",
        instruction=writer if ends else reader,
        quantities={} if view.nbytes is None else {"output.nbytes": view.nbytes},
        unknown="how large the result is, is not known here",
        texts={
            **alias_at(context, read.point, root),
            "output": view.name,
            "input": root.name,
            "writer": caller_name(writer),
            "reader": "the caller" if ends else caller_name(reader),
        },
        places=places_of(output=view.instruction, writer=writer),
        dedup_key=view.number,
        uncertainty=uncertainty,
        path=read.path,
    )

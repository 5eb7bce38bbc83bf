"""Sites of kind `construct`: memory that a packed function may keep, overwritten before it may be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from symalloc.analysis.conflicts import Access
from symalloc.analysis.regions import Region, RegionKind
from symalloc.analysis.sets import contains, members
from symalloc.linter.sites.registry import function_sites
from symalloc.linter.sites.site import FunctionContext, RelationSite, Site, caller_name
from symalloc.program.ir import CallPacked
from symalloc.size.condition import gt, lt


@function_sites("construct", expanded=True)
def overwritten_while_kept(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find tensors that a packed function of unknown effect may hold on to, and whose memory others write.

    It matters where such a function is called behind the write: it may hand out, or read, what is lost.
    """
    keepers = _keepers(context)
    for point, keeper in keepers:
        kept = context.points_to.resolve(context.analysis.effects[point].captures)
        for number in members(kept & ~context.points_to.storages):
            region = context.points_to.regions[number]
            found = _lost(context, point, region, keepers)
            if found is not None:
                write, reader = found
                writer = context.analysis.cfg.points[write.point].instruction
                what = (
                    f"`{keeper.name}` may hold on to `{region.name}`, whose memory {caller_name(writer)} "
                    f"overwrites before `{reader}` may read it"
                )
                yield (
                    point,
                    RelationSite(
                        kind="construct",
                        instruction=keeper,
                        relation="not-understood",
                        texts={"what": what},
                        path=write.path,
                        until=write.point,
                        dedup_key=(point, number),
                    ),
                )


def _keepers(context: FunctionContext) -> Sequence[tuple[int, CallPacked]]:
    """The calls of packed functions that may keep a state: impure, of unknown effect, and no library's.

    A library is given memory without content, among other things, and fills it.
    """
    return [
        (point, call)
        for point, call in context.analysis.cfg.of_type(CallPacked)
        if call.may_capture and not call.pure
        if not _fills(context, point)
    ]


def _fills(context: FunctionContext, point: int) -> bool:
    """True if a call is given a tensor that nothing has written so far."""
    points_to, effect = context.points_to, context.analysis.effects[point]
    contents = context.analysis.written.before[point].contents
    empty = (RegionKind.TENSOR, RegionKind.FRESH)
    given = (points_to.regions[number] for number in members(points_to.resolve(effect.reads)))
    return any(r.kind in empty and not contains(contents, r.number) for r in given)


def _lost(
    context: FunctionContext, keeper: int, region: Region, readers: Sequence[tuple[int, CallPacked]]
) -> tuple[Access, str] | None:
    """A write behind `keeper` of memory that is also `region`'s, and what may read that behind it."""
    conflicts, paths = context.conflicts, context.paths
    for number in members(conflicts.siblings(region.number)):
        other = context.points_to.regions[number]
        for write in conflicts.accesses.writes.get(number, ()):
            if write.point > keeper and _may_share(context, region, other, write):
                path = paths.at[keeper] | write.path | region.path
                behind = ((p, r.name) for p, r in readers if p > write.point)
                for point, reader in behind:
                    if paths.feasible(path | paths.at[point], point):
                        return write._replace(path=path | paths.at[point]), reader
    return None


def _may_share(context: FunctionContext, one: Region, other: Region, write: Access) -> bool:
    """False where two regions of one root are proved to have no byte in common."""
    if one.offset is None or other.offset is None or one.nbytes is None or other.nbytes is None:
        return True
    shared = (
        lt(one.offset, other.offset + other.nbytes),
        lt(other.offset, one.offset + one.nbytes),
        gt(one.nbytes, 0),
        gt(other.nbytes, 0),
    )
    known = context.paths.conditions(context.paths.whole(write.path, write.point), write.point)
    return context.paths.possible((*known, *shared)) is not False

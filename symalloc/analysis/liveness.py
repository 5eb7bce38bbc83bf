"""What is written before and read after each step, on some path; and from that, contents overwritten
while needed.

A region is *written before* a step if some path to it writes the region, and *read after* a step if some
path from it reads the region; control has no loops, so a path to and a path from a step make one path
through it.  A CHOICE (the value of an If) that is read after the If is, seen from within a block, only
what that block yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from symalloc.analysis.effects import NO_EFFECT, Effect
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import members
from symalloc.program.control_flow import PointKind


class Reads(NamedTuple):
    """Regions read later.

    `must` on some path, `may` only if a call of unknown ownership returned its argument; `contents` are
    both, less the choices, with the parts of all of them, and what is left of those that were rewritten in
    part before.
    """

    must: int = 0
    may: int = 0
    contents: int = 0


class Written(NamedTuple):
    """Regions written before on some path, and with them the parts of all of them."""

    whole: int = 0
    contents: int = 0


def written_before(points_to: PointsTo, effects: Sequence[Effect]) -> list[Written]:
    """For each step the regions written on some path to it; parameters are written on entry."""
    given = 0
    for cell in points_to.parameters:
        given |= cell.must | cell.may
    current = Written(given, points_to.contents(given))
    found: list[Written] = []
    stack: list[Written] = []
    for step, effect in zip(points_to.cfg.points, effects, strict=True):
        if step.kind is PointKind.BRANCH:
            stack.append(current)
        elif step.kind is PointKind.ELSE:
            current, stack[-1] = stack[-1], current
        elif step.kind is PointKind.JOIN:
            other = stack.pop()
            current = Written(current.whole | other.whole, current.contents | other.contents)
        found.append(current)
        if effect is NO_EFFECT:
            continue
        fresh = effect.writes | effect.may_writes | effect.may_defs | effect.defs
        if fresh & ~current.whole:
            fresh = points_to.resolve(fresh)
            current = Written(current.whole | fresh, current.contents | points_to.contents(fresh))
    return found


def read_after(points_to: PointsTo, effects: Sequence[Effect]) -> tuple[list[Reads], list[Reads]]:
    """For each step the regions read on some path from it; and those read then or by the step itself, without
    what the step writes anew.
    """
    steps = points_to.cfg.points
    behind, since = [Reads()] * len(steps), [Reads()] * len(steps)
    reads, stack = Reads(), list[Reads]()
    for index in range(len(steps) - 1, -1, -1):
        step, effect = steps[index], effects[index]
        behind[index] = reads
        if step.kind is PointKind.JOIN:
            stack.append(reads)
            reads = _on_branch(points_to, reads, step.branch, then=False)
        elif step.kind is PointKind.ELSE:
            outside = stack.pop()
            stack.append(reads)
            reads = _on_branch(points_to, outside, step.branch, then=True)
        elif step.kind is PointKind.BRANCH:
            other = stack.pop()
            reads = Reads(reads.must | other.must, reads.may | other.may, reads.contents | other.contents)
        if effect is not NO_EFFECT:
            if effect.must_defs & reads.contents:
                reads = _rewritten(points_to, reads, effect.must_defs)
            reads = _reading(points_to, reads, effect.reads, effect.may_reads)
        since[index] = reads
    return behind, since


def _rewritten(points_to: PointsTo, reads: Reads, covers: int) -> Reads:
    """`reads` in front of a step that writes all of `covers`; choices among them stay needed."""
    parts = around = covers
    for index in members(covers) if points_to.views else ():
        parts |= points_to.descendants[index]
        around |= points_to.ancestors[index] | points_to.descendants[index]
    return Reads(reads.must & ~around, reads.may & ~around, reads.contents & ~parts)


def _reading(points_to: PointsTo, reads: Reads, must: int, may: int) -> Reads:
    """`reads` and a read of more."""
    if not (must & ~reads.must or may & ~reads.may):
        return reads
    fresh = points_to.contents((must | may) & ~points_to.phis)
    return Reads(reads.must | must, reads.may | may, reads.contents | fresh)


def _on_branch(points_to: PointsTo, reads: Reads, choice: int, *, then: bool) -> Reads:
    """`reads` as seen at the end of one block of the If at step `choice`."""
    for index in members((reads.must | reads.may) & points_to.phis):
        region, bit = points_to.regions[index], 1 << index
        if region.branch != choice or region.sources is None:
            continue
        source = region.sources[0 if then else 1]
        must, may = reads.must & bit, reads.may & bit
        reads = Reads(reads.must & ~bit, reads.may & ~bit, reads.contents)
        if must:
            reads = _reading(points_to, reads, source.must, source.may)
        if may:
            reads = _reading(points_to, reads, 0, source.must | source.may)
    return reads

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
from symalloc.analysis.regions import indices
from symalloc.program.flow import Mark

__all__ = ["Reads", "Written", "read_after", "written_before"]


class Reads(NamedTuple):
    """Regions read later.

    `sure` on some path, `maybe` only if a call of unknown ownership returned its argument; `contents` are
    both, less the choices, with the parts of all of them, and what is left of those that were rewritten in
    part before.
    """

    sure: int = 0
    maybe: int = 0
    contents: int = 0


class Written(NamedTuple):
    """Regions written before on some path, and with them the parts of all of them."""

    whole: int = 0
    contents: int = 0


def written_before(points: PointsTo, effects: Sequence[Effect]) -> list[Written]:
    """For each step the regions written on some path to it; parameters are written on entry."""
    given = 0
    for cell in points.given:
        given |= cell.sure | cell.maybe
    current = Written(given, points.contents(given))
    found: list[Written] = []
    stack: list[Written] = []
    for step, effect in zip(points.flow.steps, effects, strict=True):
        if step.mark is Mark.IF:
            stack.append(current)
        elif step.mark is Mark.ELSE:
            current, stack[-1] = stack[-1], current
        elif step.mark is Mark.JOIN:
            other = stack.pop()
            current = Written(current.whole | other.whole, current.contents | other.contents)
        found.append(current)
        if effect is NO_EFFECT:
            continue
        fresh = effect.writes | effect.maybe_writes | effect.fills | effect.makes
        if fresh & ~current.whole:
            fresh = points.real(fresh)
            current = Written(current.whole | fresh, current.contents | points.contents(fresh))
    return found


def read_after(points: PointsTo, effects: Sequence[Effect]) -> tuple[list[Reads], list[Reads]]:
    """For each step the regions read on some path from it; and those read then or by the step itself, without
    what the step writes anew.
    """
    steps = points.flow.steps
    behind, since = [Reads()] * len(steps), [Reads()] * len(steps)
    reads, stack = Reads(), list[Reads]()
    for index in range(len(steps) - 1, -1, -1):
        step, effect = steps[index], effects[index]
        behind[index] = reads
        if step.mark is Mark.JOIN:
            stack.append(reads)
            reads = _on_branch(points, reads, step.first, then=False)
        elif step.mark is Mark.ELSE:
            outside = stack.pop()
            stack.append(reads)
            reads = _on_branch(points, outside, step.first, then=True)
        elif step.mark is Mark.IF:
            other = stack.pop()
            reads = Reads(reads.sure | other.sure, reads.maybe | other.maybe, reads.contents | other.contents)
        if effect is not NO_EFFECT:
            if effect.covers & reads.contents:
                reads = _rewritten(points, reads, effect.covers)
            reads = _reading(points, reads, effect.reads, effect.maybe_reads)
        since[index] = reads
    return behind, since


def _rewritten(points: PointsTo, reads: Reads, covers: int) -> Reads:
    """`reads` in front of a step that writes all of `covers`; choices among them stay needed."""
    parts = around = covers
    for index in indices(covers) if points.views else ():
        parts |= points.below[index]
        around |= points.above[index] | points.below[index]
    return Reads(reads.sure & ~around, reads.maybe & ~around, reads.contents & ~parts)


def _reading(points: PointsTo, reads: Reads, sure: int, maybe: int) -> Reads:
    """`reads` and a read of more."""
    if not (sure & ~reads.sure or maybe & ~reads.maybe):
        return reads
    fresh = points.contents((sure | maybe) & ~points.choices)
    return Reads(reads.sure | sure, reads.maybe | maybe, reads.contents | fresh)


def _on_branch(points: PointsTo, reads: Reads, choice: int, *, then: bool) -> Reads:
    """`reads` as seen at the end of one block of the If at step `choice`."""
    for index in indices((reads.sure | reads.maybe) & points.choices):
        region, bit = points.regions[index], 1 << index
        if region.choice != choice or region.sources is None:
            continue
        source = region.sources[0 if then else 1]
        sure, maybe = reads.sure & bit, reads.maybe & bit
        reads = Reads(reads.sure & ~bit, reads.maybe & ~bit, reads.contents)
        if sure:
            reads = _reading(points, reads, source.sure, source.maybe)
        if maybe:
            reads = _reading(points, reads, 0, source.sure | source.maybe)
    return reads

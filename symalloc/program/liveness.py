"""What is written before and read after each step, on some path; and from that, contents overwritten
while needed.

A region is *written before* a step if some path to it writes the region, and *read after* a step if some
path from it reads the region; control has no loops, so a path to and a path from a step make one path
through it.  A CHOICE (the value of an If) that is read after the If is, seen from within a block, only
what that block yields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from symalloc.program.effects import Effect
from symalloc.program.flow import Mark
from symalloc.program.pointers import PointsTo
from symalloc.program.regions import Target, indices

__all__ = ["Overwrite", "overwrites", "read_after", "reader_of", "written_before"]


class _Reads(NamedTuple):
    """Regions read later: surely on some path, and only if a call of unknown ownership returned its
    argument.
    """

    sure: int = 0
    maybe: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """At step `writer` region `second` is written, while `first`, of the same root, holds what is read
    later.

    Whether bytes are lost depends on whether the two overlap.  `reader` is a step that reads `first`
    next.  `certain` unless it takes a function of unknown ownership to return its argument; then
    `through` names that function.
    """

    first: int
    second: int
    writer: int
    reader: int
    certain: bool
    through: str | None = None


def written_before(points: PointsTo, effects: Sequence[Effect]) -> list[int]:
    """For each step the regions written on some path to it; parameters are written on entry."""
    written = 0
    for cell in points.given:
        written |= cell.sure | cell.maybe
    found: list[int] = []
    stack: list[int] = []
    for step, effect in zip(points.flow.steps, effects, strict=True):
        if step.mark is Mark.IF:
            stack.append(written)
        elif step.mark is Mark.ELSE:
            written, stack[-1] = stack[-1], written
        elif step.mark is Mark.JOIN:
            written |= stack.pop()
        found.append(written)
        fresh = effect.writes | effect.maybe_writes | effect.fills | effect.makes
        if fresh:
            written |= points.real(fresh)
    return found


def read_after(points: PointsTo, effects: Sequence[Effect]) -> list[_Reads]:
    """For each step the regions read on some path from it."""
    steps = points.flow.steps
    found = [_Reads()] * len(steps)
    reads, stack = _Reads(), list[_Reads]()
    for index in range(len(steps) - 1, -1, -1):
        step, effect = steps[index], effects[index]
        found[index] = reads
        if step.mark is Mark.JOIN:
            stack.append(reads)
            reads = _on_branch(points, reads, step.first, then=False)
        elif step.mark is Mark.ELSE:
            outside = stack.pop()
            stack.append(reads)
            reads = _on_branch(points, outside, step.first, then=True)
        elif step.mark is Mark.IF:
            other = stack.pop()
            reads = _Reads(reads.sure | other.sure, reads.maybe | other.maybe)
        if effect.reads or effect.maybe_reads:
            reads = _Reads(reads.sure | effect.reads, reads.maybe | effect.maybe_reads)
    return found


def _on_branch(points: PointsTo, reads: _Reads, choice: int, *, then: bool) -> _Reads:
    """`reads` as seen at the end of one block of the If at step `choice`."""
    sure, maybe = reads
    for index in indices((sure | maybe) & points.choices):
        region, bit = points.regions[index], 1 << index
        if region.choice != choice or region.sources is None:
            continue
        source = region.sources[0 if then else 1]
        if sure & bit:
            sure, maybe = (sure & ~bit) | source.sure, maybe | source.maybe
        if maybe & bit:
            maybe = (maybe & ~bit) | source.sure | source.maybe
    return _Reads(sure, maybe)


def overwrites(points: PointsTo, effects: Sequence[Effect]) -> Iterator[Overwrite]:
    """The pairs of different regions of one root where one is written while the other is needed, once a
    pair.
    """
    written, reads = written_before(points, effects), read_after(points, effects)
    seen: set[tuple[int, int]] = set()
    for index, effect in enumerate(effects):
        if not (effect.writes or effect.maybe_writes or effect.fills):
            continue
        moment = _moment(points, index, effect, written[index], reads[index])
        sure = effect.writes | (effect.fills & ~written[index])
        for target in points.targets(sure, effect.maybe_writes):
            for first, certain in moment.needed(target):
                pair = (min(first, target.region), max(first, target.region))
                if pair not in seen:
                    seen.add(pair)
                    yield _overwrite(points, effects, index, first, target.region, certain)


def _moment(points: PointsTo, index: int, effect: Effect, written: int, later: _Reads) -> _Moment:
    """What holds around a step that writes; its own arguments are read while it writes."""
    own = points.real(effect.writes | effect.maybe_writes | effect.fills | effect.makes)
    sure, maybe = later.sure | effect.reads, later.maybe | effect.maybe_reads
    return _Moment(points=points, index=index, written=written | own, sure=sure, maybe=maybe)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What is written before and read after (or during) the writing step `index`."""

    points: PointsTo
    index: int
    written: int
    sure: int
    maybe: int

    def needed(self, second: Target) -> Iterator[tuple[int, bool]]:
        """The regions whose content is needed across the write of `second`; and whether that is certain."""
        points = self.points
        root = points.regions[second.region].root
        others = points.below[root] & ~points.above[second.region] & ~points.below[second.region]
        if not others:
            return
        plain = ~points.choices
        for bits, certain in ((self.sure, second.certain), (self.maybe & ~self.sure, False)):
            if bits & points.choices:
                yield from self.chosen(bits & points.choices, others, second, certain)
            for index in indices(points.contents(bits & plain) & others & ~points.storages):
                if self.holds(index, bits, second) and _together(points.regions[index].sides, second.sides):
                    yield index, certain

    def chosen(self, bits: int, others: int, second: Target, certain: bool) -> Iterator[tuple[int, bool]]:
        """The same for what is read through the values of Ifs."""
        for target in self.points.targets(bits):
            if not _together(target.sides, second.sides):
                continue
            direct = 1 << target.region
            for index in indices(self.points.contents(direct) & others & ~self.points.storages):
                if self.holds(index, direct, second):
                    yield index, certain and target.certain

    def holds(self, index: int, read: int, second: Target) -> bool:
        """Whether region `index` holds content: its own, or that of a whole it is a part of and `second`
        is not.
        """
        if self.written >> index & 1:
            return True
        above = self.points.above
        return bool(read >> index & 1 and above[index] & self.written & ~above[second.region])


def _together(left: frozenset[tuple[int, bool]], right: frozenset[tuple[int, bool]]) -> bool:
    """Whether one path can take the branches of both."""
    return not left or not right or all((choice, not then) not in right for choice, then in left)


def _overwrite(
    points: PointsTo, effects: Sequence[Effect], writer: int, first: int, second: int, certain: bool
) -> Overwrite:
    family = points.above[first] | points.below[first]
    other = points.above[second] | points.below[second]
    through = None if certain else _doubt(points, family | other)
    reader = reader_of(points, effects, writer, family)
    return Overwrite(
        first=first, second=second, writer=writer, reader=reader, certain=certain, through=through
    )


def reader_of(points: PointsTo, effects: Sequence[Effect], writer: int, family: int) -> int:
    """The first step from `writer` on that may read a region of `family`; `writer` itself where there is
    none.
    """
    if points.real(effects[writer].reads) & family:
        return writer
    for index in points.flow.after(writer):
        effect = effects[index]
        bits = effect.reads | effect.maybe_reads
        if bits and points.real(bits) & family:
            return index
    return writer


def _doubt(points: PointsTo, family: int) -> str | None:
    """The name of a function that may return one of `family`."""
    return next((d.name for d in points.doubts if points.real(d.regions) & family), None)

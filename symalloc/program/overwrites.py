"""Contents that are overwritten while they are still needed: pairs of regions that must not overlap.

What may be such a pair is read off liveness, which keeps one set for all paths.  Each is then held
against the paths: there must be one that first writes the one region, then the other, then reads the
first.  Ifs are taken to be independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from symalloc.program.effects import Effect
from symalloc.program.flow import Mark
from symalloc.program.liveness import Reads, Written, read_after, reading, written_before
from symalloc.program.pointers import PointsTo
from symalloc.program.regions import Sides, Target, indices

__all__ = ["Overwrite", "overwrites"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwrite:
    """At step `writer` region `second` is written, while `first`, of the same root, holds what is read
    later.

    Whether bytes are lost depends on whether the two overlap.  `reader` is a step that reads `first`
    afterwards, or `writer` itself.  `certain` unless it takes a function of unknown ownership to return
    its argument; then `through` names that function.
    """

    first: int
    second: int
    writer: int
    reader: int
    certain: bool
    through: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Access:
    """Step `step` reads or writes `region`, on the branches `sides`."""

    step: int
    region: int
    sides: Sides
    certain: bool


def overwrites(points: PointsTo, effects: Sequence[Effect]) -> Iterator[Overwrite]:
    """The pairs of regions, and the writes, of which one may undo what another wrote; in program order."""
    written, reads = written_before(points, effects), read_after(points, effects)
    paths: _Paths | None = None
    for index, effect in enumerate(effects):
        if not (effect.writes or effect.maybe_writes or effect.fills):
            continue
        held, needed = _around(points, effect, written[index], reads[index])
        sure = effect.writes | (effect.fills & ~written[index].whole)
        for second in points.targets(sure, effect.maybe_writes):
            candidates = _family(points, second.region) & held & needed
            if candidates:
                paths = paths or _Paths(points, effects)
                yield from paths.overwritten(candidates, index, second)


def _around(points: PointsTo, effect: Effect, before: Written, later: Reads) -> tuple[int, int]:
    """What holds content and what is needed around a write; its own arguments are read while it writes."""
    own = points.real(effect.writes | effect.maybe_writes | effect.fills | effect.makes)
    reads = reading(points, later, effect.reads, effect.maybe_reads)
    needed, chosen = reads.contents, (reads.sure | reads.maybe) & points.choices
    if chosen:
        needed |= points.contents(points.real(chosen))
    return before.contents | points.contents(own), needed


def _family(points: PointsTo, region: int) -> int:
    """The regions of the same root that are neither parts of `region` nor what it is part of."""
    others = points.below[points.regions[region].root] & ~points.storages
    return others & ~points.above[region] & ~points.below[region]


class _Paths:
    """Finds paths that write, overwrite and read."""

    def __init__(self, points: PointsTo, effects: Sequence[Effect]) -> None:
        self.points, self.effects = points, effects
        self.writes = [e.writes | e.maybe_writes | e.fills | e.makes for e in effects]
        self.branches = _branches(points)

    def overwritten(self, candidates: int, index: int, second: Target) -> Iterator[Overwrite]:
        """The candidates that `second`, written at step `index`, undoes on some path."""
        for first in indices(candidates):
            found = self.path(first, index, second)
            if found is not None:
                yield found

    def path(self, first: int, index: int, second: Target) -> Overwrite | None:
        """A path on which `first` is written, then `second` at step `index`, then `first` read; a certain
        one first.
        """
        points = self.points
        base = self.branches[index] | second.sides | points.regions[first].sides
        if not _possible(base):
            return None
        writes = [w for w in self.written(first, index) if _possible(base | w.sides)]
        reads = [r for r in self.read(first, index) if _possible(base | r.sides)]
        best: Overwrite | None = None
        for write in writes:
            for read in reads:
                if not self.matches(first, second.region, write, read, base):
                    continue
                certain = second.certain and write.certain and read.certain
                if certain:
                    return Overwrite(
                        first=first, second=second.region, writer=index, reader=read.step, certain=True
                    )
                best = best or self.doubtful(first, second.region, index, read.step)
        return best

    def matches(self, first: int, second: int, write: _Access, read: _Access, base: Sides) -> bool:
        """Whether one path holds both, and `first` is what the two have in common.

        A whole that `second` is part of as well is written and read through its parts at will.
        """
        above = self.points.above
        direct = write.region == first
        whole = read.region == first and not above[second] >> write.region & 1
        return (direct or whole) and _possible(base | write.sides | read.sides)

    def written(self, first: int, index: int) -> Iterator[_Access]:
        """The writes of `first`, or of what it is part of, up to step `index`."""
        mask = self.points.above[first] & ~self.points.storages
        for cell in self.points.given:
            yield from self.accesses(-1, cell.sure, cell.maybe, mask)
        for step in range(index + 1):
            bits = self.writes[step]
            if bits:
                effect = self.effects[step]
                sure = effect.writes | effect.fills | effect.makes
                yield from self.accesses(step, sure, effect.maybe_writes, mask)

    def read(self, first: int, index: int) -> Iterator[_Access]:
        """The reads of `first`, or of what it is part of, from step `index` on."""
        mask = self.points.above[first] & ~self.points.storages
        for step in range(index, len(self.effects)):
            effect = self.effects[step]
            if effect.reads or effect.maybe_reads:
                yield from self.accesses(step, effect.reads, effect.maybe_reads, mask)

    def accesses(self, step: int, sure: int, maybe: int, mask: int) -> Iterator[_Access]:
        """The targets of an access that lie in `mask`."""
        if not self.points.real(sure | maybe) & mask:
            return
        around = self.branches[step] if step >= 0 else frozenset()
        for target in self.points.targets(sure, maybe):
            if mask >> target.region & 1:
                sides = target.sides | around
                yield _Access(step=step, region=target.region, sides=sides, certain=target.certain)

    def doubtful(self, first: int, second: int, writer: int, reader: int) -> Overwrite:
        """An overwrite that takes a function of unknown ownership."""
        points = self.points
        family = points.above[first] | points.below[first] | points.above[second] | points.below[second]
        through = next((d.name for d in points.doubts if points.real(d.regions) & family), None)
        return Overwrite(
            first=first, second=second, writer=writer, reader=reader, certain=False, through=through
        )


def _branches(points: PointsTo) -> list[Sides]:
    """For each step the branches that it stands in; ELSE stands in the then-block, JOIN in the else-block.

    Both evaluate the value of the block that ends there.
    """
    found: list[Sides] = []
    current: Sides = frozenset()
    outside: list[Sides] = []
    for index, step in enumerate(points.flow.steps):
        found.append(current)
        if step.mark is Mark.IF:
            outside.append(current)
            current = current | {(index, True)}
        elif step.mark is Mark.ELSE:
            current = outside[-1] | {(step.first, False)}
        elif step.mark is Mark.JOIN:
            current = outside.pop()
    return found


def _possible(sides: Sides) -> bool:
    """Whether one path can take all these branches."""
    return len(sides) < 2 or len({choice for choice, _ in sides}) == len(sides)

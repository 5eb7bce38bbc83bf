"""Contents that are overwritten while they are still needed: pairs of regions that must not overlap.

What may be such a pair is read off liveness, which keeps one set for all paths.  Each is then held
against the paths: there must be one that first writes the one region, then the other, then reads the
first.  Ifs are taken to be independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from symalloc.analysis.effects import Effect
from symalloc.analysis.liveness import Reads, Written, read_after, written_before
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import Sides, Target, indices
from symalloc.program.flow import Mark

__all__ = ["Access", "Overwrite", "Paths", "candidates", "possible"]


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


class Access(NamedTuple):
    """Step `step` reads or writes `region`, on the branches `sides`; step -1 is the entry to the function."""

    step: int
    region: int
    sides: Sides
    certain: bool


def candidates(points: PointsTo, effects: Sequence[Effect]) -> Iterator[tuple[int, Target, int]]:
    """Writes that may undo what another wrote: (step, what it writes, the region that may be undone).

    Read off liveness alone; `Paths.overwrite` says which of them are so on some path.
    """
    written, (behind, since) = written_before(points, effects), read_after(points, effects)
    for index, effect in enumerate(effects):
        if not (effect.writes or effect.maybe_writes or effect.fills):
            continue
        held, needed = _around(points, effect, written[index], (behind[index], since[index]))
        sure = effect.writes | (effect.fills & ~written[index].whole)
        for second in points.targets(sure, effect.maybe_writes):
            for first in indices(_family(points, second.region) & held & needed):
                yield index, second, first


def _around(points: PointsTo, effect: Effect, before: Written, reads: tuple[Reads, Reads]) -> tuple[int, int]:
    """What holds content and what is needed around a write; its own arguments are read while it writes."""
    own = points.real(effect.writes | effect.maybe_writes | effect.fills | effect.makes)
    later, now = reads
    needed = later.contents | now.contents
    chosen = (later.sure | later.maybe | now.sure | now.maybe) & points.choices
    if chosen:
        needed |= points.contents(points.real(chosen))
    return before.contents | points.contents(own), needed


def _family(points: PointsTo, region: int) -> int:
    """The regions of the same root that are neither parts of `region` nor what it is part of."""
    others = points.below[points.regions[region].root] & ~points.storages
    return others & ~points.above[region] & ~points.below[region]


class Paths:
    """Finds paths that write, overwrite and read."""

    def __init__(self, points: PointsTo, effects: Sequence[Effect]) -> None:
        self.points = points
        self.branches = _branches(points)
        self.writes: dict[int, list[Access]] = {}
        self.reads: dict[int, list[Access]] = {}
        self.covers: dict[int, list[int]] = {}
        for cell in points.given:
            self.enter(self.writes, -1, cell.sure, cell.maybe)
        for step, effect in enumerate(effects):
            self.enter(self.writes, step, effect.writes | effect.fills | effect.makes, effect.maybe_writes)
            self.enter(self.reads, step, effect.reads, effect.maybe_reads)
            for region in indices(effect.covers):
                self.covers.setdefault(region, []).append(step)

    def enter(self, table: dict[int, list[Access]], step: int, sure: int, maybe: int) -> None:
        """Notes an access, by region."""
        if not (sure or maybe):
            return
        around = self.branches[step] if step >= 0 else frozenset()
        for target in self.points.targets(sure, maybe):
            access = Access(step, target.region, target.sides | around, target.certain)
            table.setdefault(target.region, []).append(access)

    def overwrite(self, index: int, second: Target, first: int) -> Overwrite | None:
        """What is lost where `first` is written, then `second` at step `index`, then `first` read.

        None where no path does so; a path that is certain goes first.
        """
        base = self.branches[index] | second.sides | self.points.regions[first].sides
        if not possible(base):
            return None
        whole = tuple(indices(self.points.above[first] & ~self.points.storages))
        writes = [w for r in whole for w in self.writes.get(r, ()) if w.step <= index]
        reads = [r for region in whole for r in self.reads.get(region, ()) if r.step >= index]
        reads.sort(key=lambda access: access.step)
        best: Overwrite | None = None
        for read in reads:
            for write in writes:
                if not self.matches(first, second.region, write, read, base):
                    continue
                if self.rewritten(first, index, read, base | write.sides | read.sides):
                    continue
                if second.certain and write.certain and read.certain:
                    return Overwrite(
                        first=first, second=second.region, writer=index, reader=read.step, certain=True
                    )
                best = best or self.doubtful(first, second.region, index, read.step)
        return best

    def matches(self, first: int, second: int, write: Access, read: Access, base: Sides) -> bool:
        """Whether one path holds both, and `first` is what the two have in common.

        A whole that `second` is part of as well is written and read through its parts at will.
        """
        above = self.points.above
        direct = write.region == first
        whole = read.region == first and not above[second] >> write.region & 1
        return (direct or whole) and possible(base | write.sides | read.sides)

    def rewritten(self, first: int, index: int, read: Access, path: Sides) -> bool:
        """Whether a step between `index` and `read` writes all of `first` anew, on every such path."""
        steps = (step for r in indices(self.points.above[first]) for step in self.covers.get(r, ()))
        return any(index < step < read.step and self.branches[step] <= path for step in steps)

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


def possible(sides: Sides) -> bool:
    """Whether one path can take all these branches."""
    return len(sides) < 2 or len({choice for choice, _ in sides}) == len(sides)

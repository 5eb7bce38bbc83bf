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
from symalloc.analysis.regions import PathCondition, Target, members
from symalloc.program.control_flow import PointKind


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
    """Point `step` reads or writes `region`, on the branches `path`; step -1 is the entry to the function."""

    step: int
    region: int
    path: PathCondition
    certain: bool


def candidates(points_to: PointsTo, effects: Sequence[Effect]) -> Iterator[tuple[int, Target, int]]:
    """Writes that may undo what another wrote: (step, what it writes, the region that may be undone).

    Read off liveness alone; `Paths.overwrite` says which of them are so on some path.
    """
    written, (behind, since) = written_before(points_to, effects), read_after(points_to, effects)
    for index, effect in enumerate(effects):
        if not (effect.writes or effect.may_writes or effect.may_defs):
            continue
        held, needed = _around(points_to, effect, written[index], (behind[index], since[index]))
        must = effect.writes | (effect.may_defs & ~written[index].whole)
        for second in points_to.targets(must, effect.may_writes):
            for first in members(_family(points_to, second.region) & held & needed):
                yield index, second, first


def _around(
    points_to: PointsTo, effect: Effect, before: Written, reads: tuple[Reads, Reads]
) -> tuple[int, int]:
    """What holds content and what is needed around a write; its own arguments are read while it writes."""
    own = points_to.resolve(effect.writes | effect.may_writes | effect.may_defs | effect.defs)
    later, now = reads
    needed = later.contents | now.contents
    chosen = (later.must | later.may | now.must | now.may) & points_to.phis
    if chosen:
        needed |= points_to.contents(points_to.resolve(chosen))
    return before.contents | points_to.contents(own), needed


def _family(points_to: PointsTo, region: int) -> int:
    """The regions of the same root that are neither parts of `region` nor what it is part of."""
    others = points_to.descendants[points_to.regions[region].root] & ~points_to.storages
    return others & ~points_to.ancestors[region] & ~points_to.descendants[region]


class Paths:
    """Finds paths that write, overwrite and read."""

    def __init__(self, points_to: PointsTo, effects: Sequence[Effect]) -> None:
        self.points_to = points_to
        self.branches = _branches(points_to)
        self.writes: dict[int, list[Access]] = {}
        self.reads: dict[int, list[Access]] = {}
        self.covers: dict[int, list[int]] = {}
        for cell in points_to.parameters:
            self.enter(self.writes, -1, cell.must, cell.may)
        for step, effect in enumerate(effects):
            self.enter(self.writes, step, effect.writes | effect.may_defs | effect.defs, effect.may_writes)
            self.enter(self.reads, step, effect.reads, effect.may_reads)
            for region in members(effect.must_defs):
                self.covers.setdefault(region, []).append(step)

    def enter(self, table: dict[int, list[Access]], step: int, must: int, may: int) -> None:
        """Notes an access, by region."""
        if not (must or may):
            return
        around = self.branches[step] if step >= 0 else frozenset()
        for target in self.points_to.targets(must, may):
            access = Access(step, target.region, target.path | around, target.certain)
            table.setdefault(target.region, []).append(access)

    def overwrite(self, index: int, second: Target, first: int) -> Overwrite | None:
        """What is lost where `first` is written, then `second` at step `index`, then `first` read.

        None where no path does so; a path that is certain goes first.
        """
        base = self.branches[index] | second.path | self.points_to.regions[first].path
        if not feasible(base):
            return None
        whole = tuple(members(self.points_to.ancestors[first] & ~self.points_to.storages))
        writes = [w for r in whole for w in self.writes.get(r, ()) if w.step <= index]
        reads = [r for region in whole for r in self.reads.get(region, ()) if r.step >= index]
        reads.sort(key=lambda access: access.step)
        best: Overwrite | None = None
        for read in reads:
            for write in writes:
                if not self.matches(first, second.region, write, read, base):
                    continue
                if self.rewritten(first, index, read, base | write.path | read.path):
                    continue
                if second.certain and write.certain and read.certain:
                    return Overwrite(
                        first=first, second=second.region, writer=index, reader=read.step, certain=True
                    )
                best = best or self.doubtful(first, second.region, index, read.step)
        return best

    def matches(self, first: int, second: int, write: Access, read: Access, base: PathCondition) -> bool:
        """Whether one path holds both, and `first` is what the two have in common.

        A whole that `second` is part of as well is written and read through its parts at will.
        """
        above = self.points_to.ancestors
        direct = write.region == first
        whole = read.region == first and not above[second] >> write.region & 1
        return (direct or whole) and feasible(base | write.path | read.path)

    def rewritten(self, first: int, index: int, read: Access, path: PathCondition) -> bool:
        """Whether a step between `index` and `read` writes all of `first` anew, on every such path."""
        steps = (step for r in members(self.points_to.ancestors[first]) for step in self.covers.get(r, ()))
        return any(index < step < read.step and self.branches[step] <= path for step in steps)

    def doubtful(self, first: int, second: int, writer: int, reader: int) -> Overwrite:
        """An overwrite that takes a function of unknown ownership."""
        points_to = self.points_to
        family = (
            points_to.ancestors[first]
            | points_to.descendants[first]
            | points_to.ancestors[second]
            | points_to.descendants[second]
        )
        through = next((d.name for d in points_to.may_returns if points_to.resolve(d.regions) & family), None)
        return Overwrite(
            first=first, second=second, writer=writer, reader=reader, certain=False, through=through
        )


def _branches(points_to: PointsTo) -> list[PathCondition]:
    """For each step the branches that it stands in; ELSE stands in the then-block, JOIN in the else-block.

    Both evaluate the value of the block that ends there.
    """
    found: list[PathCondition] = []
    current: PathCondition = frozenset()
    outside: list[PathCondition] = []
    for index, step in enumerate(points_to.cfg.points):
        found.append(current)
        if step.kind is PointKind.BRANCH:
            outside.append(current)
            current = current | {(index, True)}
        elif step.kind is PointKind.ELSE:
            current = outside[-1] | {(step.branch, False)}
        elif step.kind is PointKind.JOIN:
            current = outside.pop()
    return found


def feasible(sides: PathCondition) -> bool:
    """Whether one path can take all these branches."""
    return len(sides) < 2 or len({choice for choice, _ in sides}) == len(sides)

"""Reuse conflicts: memory that one thing writes while another still needs what it holds.

What may be such a pair is read off liveness, which keeps one set for all paths.  Each is then held
against the paths: there must be one that first writes the one region, then the other, then reads the
first.  Ifs are taken to be independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from symalloc.analysis.dataflow import States
from symalloc.analysis.effects import Effect
from symalloc.analysis.liveness import LiveRegions, WrittenRegions
from symalloc.analysis.paths import PathCondition, feasible, path_conditions
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.regions import Target
from symalloc.analysis.sets import RegionSet, contains, members


class ReuseConflict(NamedTuple):
    """On some path point `writer` writes region `second`, while `first` holds what is needed later.

    `reader` is a point that needs `first` afterwards, or `writer` itself.  `certain` unless it takes a
    function of unknown ownership to return its argument; then `through` may name that function.
    """

    first: int
    second: int
    writer: int
    reader: int
    certain: bool
    through: str | None = None


class Access(NamedTuple):
    """A point that reads or writes `region`, on the branches `path`; -1 is the entry of the function."""

    point: int
    region: int
    path: PathCondition
    certain: bool


@dataclass(slots=True)
class _Accesses:
    """The accesses to each region, in order; `must_defs` are the points that write all of it."""

    writes: dict[int, list[Access]] = field(default_factory=dict)
    reads: dict[int, list[Access]] = field(default_factory=dict)
    must_defs: dict[int, list[int]] = field(default_factory=dict)


class ReuseConflicts:
    """Finds paths that write, overwrite and read."""

    def __init__(self, points_to: PointsTo, effects: Sequence[Effect]) -> None:
        self.points_to, self.effects = points_to, effects

    # -- overwrites: regions of one root -------------------------------------------------------------------

    def candidates(
        self, written: States[WrittenRegions], live: States[LiveRegions]
    ) -> Iterator[tuple[int, Target, int]]:
        """Writes that may undo what another wrote: (point, what it writes, the region that may be undone).

        Read off liveness alone; `overwrite` says which of them are so on some path.
        """
        for point, effect in enumerate(self.effects):
            if not (effect.writes or effect.may_writes or effect.may_defs):
                continue
            before = written.before[point]
            own = self.points_to.contents(self.points_to.resolve(effect.written))
            at_risk = (before.contents | own) & self.needed(live.before[point], live.after[point])
            must = effect.writes | (effect.may_defs & ~before.whole)
            for second in self.points_to.targets(must, effect.may_writes):
                for first in members(self.siblings(second.region) & at_risk):
                    yield point, second, first

    def needed(self, live_in: LiveRegions, live_out: LiveRegions) -> RegionSet:
        """The regions needed around a write; its own arguments are read while it writes."""
        points_to = self.points_to
        phis = (live_out.must | live_out.may | live_in.must | live_in.may) & points_to.phis
        needed = live_out.contents | live_in.contents
        return needed | points_to.contents(points_to.resolve(phis)) if phis else needed

    def siblings(self, number: int) -> RegionSet:
        """The regions of the same root that are neither parts of a region nor what it is part of."""
        points_to = self.points_to
        others = points_to.descendants[points_to.regions[number].root] & ~points_to.storages
        return others & ~points_to.ancestors[number] & ~points_to.descendants[number]

    def overwrite(self, point: int, second: Target, first: int) -> ReuseConflict | None:
        """The content lost where `first` is written, then `second` at `point`, then `first` read.

        None where no path does so; a path that is certain goes first.
        """
        base = self.paths[point] | second.path | self.points_to.regions[first].path
        if not feasible(base):
            return None
        whole = tuple(members(self.points_to.ancestors[first] & ~self.points_to.storages))
        table = self.accesses
        writes = [w for r in whole for w in table.writes.get(r, ()) if w.point <= point]
        reads = [r for region in whole for r in table.reads.get(region, ()) if r.point >= point]
        reads.sort(key=lambda access: access.point)
        best: ReuseConflict | None = None
        for read in reads:
            for write in writes:
                if not self.matches(first, second.region, write, read, base):
                    continue
                if self.rewritten(first, point, read, base | write.path | read.path):
                    continue
                if second.certain and write.certain and read.certain:
                    return ReuseConflict(first, second.region, point, read.point, True)
                best = best or self.uncertain(first, second.region, point, read.point)
        return best

    def matches(self, first: int, second: int, write: Access, read: Access, base: PathCondition) -> bool:
        """True if one path holds both, and `first` is what the two have in common.

        A whole that `second` is part of as well is written and read through its parts at will.
        """
        direct = write.region == first
        whole = read.region == first and not contains(self.points_to.ancestors[second], write.region)
        return (direct or whole) and feasible(base | write.path | read.path)

    def rewritten(self, first: int, point: int, read: Access, path: PathCondition) -> bool:
        """True if a point between `point` and `read` writes all of `first` anew, on every such path."""
        regions = members(self.points_to.ancestors[first])
        between = (other for r in regions for other in self.accesses.must_defs.get(r, ()))
        return any(point < other < read.point and self.paths[other] <= path for other in between)

    def uncertain(self, first: int, second: int, writer: int, reader: int) -> ReuseConflict:
        """An overwrite that takes a function of unknown ownership."""
        points_to = self.points_to
        related = points_to.ancestors[first] | points_to.descendants[first]
        related |= points_to.ancestors[second] | points_to.descendants[second]
        calls = (call.name for call in points_to.may_returns if points_to.resolve(call.regions) & related)
        return ReuseConflict(first, second, writer, reader, False, next(calls, None))

    def stale_reads(self, view: Target) -> Iterator[tuple[Access, Access]]:
        """The writes of a view, each with the reads behind it, on its path, of what the view is part of."""
        above = (number for number in members(self.points_to.ancestors[view.region]) if number != view.region)
        reads = [read for number in above for read in self.accesses.reads.get(number, ())]
        root = self.points_to.regions[view.region].root
        for write in self.accesses_to(view.region, self.accesses.writes):
            for read in reads:
                path = write.path | read.path | view.path
                if read.point < write.point or not feasible(path):
                    continue
                if not self.rewritten(root, write.point, read, path):
                    yield write, read

    # -- takeover: one root in the memory of another ---------------------------------------------------------

    def takeover(self, writes: int, wanted: int) -> Iterator[ReuseConflict]:
        """The conflicts that keep root `writes` from taking over the memory of root `wanted`.

        What `wanted` holds is taken to be needed whenever something touches it: to write all of it anew would
        spoil what was written into its memory.  Conflicts within one point come last.
        """
        found = {
            (w.point == t.point, w.point, t.point, not (w.certain and t.certain))
            for w in self.accesses_to(writes, self.accesses.writes)
            for t in self.accesses_to(wanted)
            if t.point >= w.point and feasible(w.path | t.path)
        }
        for _, writer, reader, uncertain in sorted(found):
            yield ReuseConflict(wanted, writes, writer, reader, not uncertain)

    def on_one_path(self, one: int, other: int) -> bool:
        """True if some path touches both roots."""
        return any(feasible(a.path | b.path) for a in self.accesses_to(one) for b in self.accesses_to(other))

    def capturing(self, root: int) -> Iterator[int]:
        """The points whose callee may hold on to a root when they are over."""
        for point, effect in enumerate(self.effects):
            if effect.captures and root in self.points_to.roots(effect.captures):
                yield point

    def writes_to(self, regions: RegionSet) -> Iterator[Access]:
        """The writes of real regions among `regions` that some path takes, by what is known to write."""
        behind = regions | self.points_to.phis
        for point, effect in enumerate(self.effects):
            if (effect.writes | effect.may_writes) & behind:
                for target in self.points_to.targets(effect.writes, effect.may_writes):
                    path = self.paths[point] | target.path
                    if contains(regions, target.region) and feasible(path):
                        yield Access(point, target.region, path, target.certain)

    # -- accesses ------------------------------------------------------------------------------------------

    @cached_property
    def paths(self) -> Sequence[PathCondition]:
        """The path condition of each point."""
        return path_conditions(self.points_to.cfg).at

    @cached_property
    def accesses(self) -> _Accesses:
        """All accesses of the function; parameters are written on entry."""
        found = _Accesses()
        for leaf in self.points_to.parameters:
            self._enter(found.writes, -1, leaf.must, leaf.may)
        for point, effect in enumerate(self.effects):
            self._enter(found.writes, point, effect.writes | effect.may_defs | effect.defs, effect.may_writes)
            self._enter(found.reads, point, effect.reads, effect.may_reads)
            for region in members(effect.must_defs):
                found.must_defs.setdefault(region, []).append(point)
        return found

    def _enter(self, table: dict[int, list[Access]], point: int, must: RegionSet, may: RegionSet) -> None:
        if not (must or may):
            return
        around = self.paths[point] if point >= 0 else frozenset()
        for target in self.points_to.targets(must, may):
            access = Access(point, target.region, target.path | around, target.certain)
            table.setdefault(target.region, []).append(access)

    def accesses_to(self, whole: int, *tables: Mapping[int, Sequence[Access]]) -> list[Access]:
        """The reads and writes of a region and its parts behind the entry, or those in `tables`."""
        numbers = tuple(members(self.points_to.descendants[whole]))
        chosen = tables or (self.accesses.reads, self.accesses.writes)
        return [a for table in chosen for n in numbers for a in table.get(n, ()) if a.point >= 0]

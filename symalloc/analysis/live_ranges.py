"""Live ranges: when the bytes of an allocation are needed, from its first access to its last, path by path.

Time is counted in *positions*: one for each program point that touches memory, in the order of the text.
Where an If yields one of two allocations, the points behind it are counted once for each, as long as that
matters, so that the two are never live at one position.  Two allocations may lie in the same place if and
only if no position is in the ranges of both.  Nothing else may be read from the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple, TypeAlias

from symalloc.analysis.effects import NO_EFFECT, Effect
from symalloc.analysis.liveness import LiveRegions
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.sets import NO_REGIONS, RegionSet, members, region_set
from symalloc.program.record import from_fields

Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted half-open intervals [begin, end) of positions."""

_MOST_BRANCHES = 5
"""The number of undecided Ifs up to which their outcomes are told apart: 2**5 numberings are enough."""


class LiveRange(NamedTuple):
    """The positions at which one allocation is live, and its first and last program point."""

    live: Intervals
    first: int
    last: int


class LiveRanges(NamedTuple):
    """The live ranges of roots by their numbers; none for what nothing touches.

    `points` holds the program point of each position.
    """

    of: Mapping[int, LiveRange]
    points: Sequence[int]


def find_live_ranges(
    points_to: PointsTo,
    effects: Sequence[Effect],
    live_out: Sequence[LiveRegions],
    numbers: Iterable[int],
    *,
    once: bool = False,
) -> LiveRanges:
    """The live ranges of roots by number.

    Numbers from `len(points_to.regions)` on are program points, for memory that is needed there alone.
    `once`: each point counts once, where all that an If may yield is live.
    """
    regions, wanted = len(points_to.regions), frozenset(numbers)
    resolve, phis = points_to.resolve, points_to.phis
    numbering = _Numbering(points_to, region_set(wanted), once=once)
    begun, run = NO_REGIONS, _PointRun()
    for point, effect in enumerate(effects):
        if effect is NO_EFFECT:
            continue
        now, later = effect.touched, live_out[point]
        begun |= numbering.roots(resolve(now) if now & phis else now)
        live = numbering.roots(now | later.contents) & begun
        if regions + point in wanted:
            live |= RegionSet(1 << (regions + point))
        undecided = (now | later.must | later.may) & numbering.phis
        if undecided != run.undecided:
            numbering.take(run)
            run = _PointRun(undecided=undecided)
        run.points.append((point, live))
    numbering.take(run)
    return LiveRanges(numbering.ranges(), numbering.points)


@dataclass(slots=True)
class _PointRun:
    """Points in a row at which the same phis are `undecided`, each with the roots live whatever they are."""

    undecided: RegionSet = NO_REGIONS
    points: list[tuple[int, RegionSet]] = field(default_factory=list)


class _Numbering:
    """Counts positions, and notes what is live at each."""

    def __init__(self, points_to: PointsTo, wanted: RegionSet, *, once: bool = False) -> None:
        self.points_to, self.wanted, self.once = points_to, wanted, once
        phis = (RegionSet(1 << number) for number in members(points_to.phis))
        self.phis = NO_REGIONS  # those that may be one of the wanted roots
        for phi in phis:
            self.phis |= phi if self.roots(points_to.resolve(phi)) else NO_REGIONS
        self.points: list[int] = []  # the program point of each position
        self.live = NO_REGIONS
        self.opened: dict[int, int] = {}
        self.found: dict[int, list[tuple[int, int]]] = {}

    def roots(self, numbers: RegionSet) -> RegionSet:
        """The wanted roots of regions; phis left out."""
        views = numbers & self.points_to.views
        for view in members(views) if views else ():
            numbers |= RegionSet(1 << self.points_to.regions[view].root)
        return numbers & self.wanted

    def take(self, run: _PointRun) -> None:
        """Count the positions of a run, once for each outcome of its phis."""
        for chosen in self.outcomes(run.undecided):
            for point, live in run.points:
                self.tick(point, live | chosen)

    def tick(self, point: int, live: RegionSet) -> None:
        """Count one more position, at which the roots `live` are needed."""
        position = len(self.points)
        self.points.append(point)
        ended, begun = self.live & ~live, live & ~self.live
        for root in members(ended) if ended else ():
            self.close(root, position)
        for root in members(begun) if begun else ():
            self.opened[root] = position
        self.live = live

    def close(self, root: int, position: int) -> None:
        self.found.setdefault(root, []).append((self.opened.pop(root), position))

    def ranges(self) -> dict[int, LiveRange]:
        """The live ranges, once all positions were counted."""
        for root in tuple(self.opened):
            self.close(root, len(self.points))
        return {root: self._range(tuple(live)) for root, live in sorted(self.found.items())}

    def _range(self, live: Intervals) -> LiveRange:
        if len(live) == 1:
            ((begin, end),) = live
            return from_fields(LiveRange, (live, self.points[begin], self.points[end - 1]))
        first = min(self.points[begin] for begin, _ in live)
        return LiveRange(live, first, max(self.points[end - 1] for _, end in live))

    # -- phis ------------------------------------------------------------------------------------------------

    def outcomes(self, undecided: RegionSet) -> Sequence[RegionSet]:
        """The sets of roots that undecided phis may be; sets within another set are left out."""
        if not undecided:
            return (NO_REGIONS,)
        branches = () if self.once else sorted(self._branches(undecided))
        if self.once or len(branches) > _MOST_BRANCHES:
            return (self.roots(self.points_to.resolve(undecided)),)
        ways = product((0, 1), repeat=len(branches))
        found = dict.fromkeys(self._chosen(undecided, dict(zip(branches, way, strict=True))) for way in ways)
        return [one for one in found if not any(one != other and one & other == one for other in found)]

    def _branches(self, undecided: RegionSet) -> set[int]:
        """The points that decide the phis, those of phis within phis included."""
        phis, pending = NO_REGIONS, [undecided]
        while pending:
            fresh = pending.pop() & self.points_to.phis & ~phis
            phis |= fresh
            for number in members(fresh):
                pending.extend(leaf.must | leaf.may for leaf in self.points_to.regions[number].sources or ())
        return {self.points_to.regions[number].branch for number in members(phis)}

    def _chosen(self, undecided: RegionSet, sides: Mapping[int, int]) -> RegionSet:
        """The roots that phis are where the Ifs went to `sides`."""
        found, pending = NO_REGIONS, [undecided]
        while pending:
            numbers = pending.pop()
            found |= numbers & ~self.points_to.phis
            for number in members(numbers & self.points_to.phis):
                region = self.points_to.regions[number]
                if region.sources is not None:
                    leaf = region.sources[sides[region.branch]]
                    pending.append(leaf.must | leaf.may)
        return self.roots(found)

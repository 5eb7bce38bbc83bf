"""Regions read after each program point, on some path.

Liveness of contents: a region is live behind a point if some path from it reads the region before every byte
is written anew.  A PHI (the value of an If) that is read behind the If is, seen from within a block, only
what that block yields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeAlias

from symalloc.analysis.effects import NO_EFFECT, Effect
from symalloc.analysis.regions import Pointees, PointsTo
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, region_set
from symalloc.program.control_flow import PointKind


class LiveRegions(NamedTuple):
    """Regions read later.

    `must` on some path, `may` only if a call of unknown ownership returned its argument; `contents` are
    both, less the phis, with the parts of all of them, and what is left of those that were rewritten in
    part before.
    """

    must: RegionSet = NO_REGIONS
    may: RegionSet = NO_REGIONS
    contents: RegionSet = NO_REGIONS


class _Liveness:
    def __init__(self, points_to: PointsTo, effects: Sequence[Effect]) -> None:
        self.points_to, self.effects = points_to, effects

    def behind_points(self) -> Iterator[tuple[int, LiveRegions]]:
        """Yield each point, from the last on, with what is live behind it."""
        state, points = LiveRegions(), self.points_to.cfg.points
        outside: list[LiveRegions] = []  # by open If: behind it, from ELSE on in front of its else-block
        for index in range(len(points) - 1, -1, -1):
            kind, branch = points[index].kind, points[index].branch
            if kind is PointKind.JOIN:
                outside.append(state)
                state = self.yielded(branch, state, then=False)
            elif kind is PointKind.ELSE:
                otherwise, state = state, self.yielded(branch, outside[-1], then=True)
                outside[-1] = otherwise
            elif kind is PointKind.BRANCH:
                state = LiveRegions(*(a | b for a, b in zip(state, outside.pop(), strict=True)))
            yield index, state
            state = self.in_front(index, state)

    def in_front(self, point: int, state: LiveRegions) -> LiveRegions:
        effect = self.effects[point]
        if effect is NO_EFFECT:
            return state
        killed = effect.must_defs
        if killed and killed & (state.contents | state.must | state.may):
            state = self.killed(state, killed)
        return self.read(state, effect.reads, effect.may_reads)

    def yielded(self, branch: int, state: LiveRegions, *, then: bool) -> LiveRegions:
        """Replace the phis of an If that are live by what one of its blocks yields for them."""
        for number in members((state.must | state.may) & self.points_to.phis):
            region = self.points_to.regions[number]
            if region.branch == branch and region.sources is not None:
                state = self.chosen(state, number, region.sources[0 if then else 1])
        return state

    def chosen(self, state: LiveRegions, phi: int, source: Pointees) -> LiveRegions:
        rest = ~RegionSet(1 << phi)
        must, may = contains(state.must, phi), contains(state.may, phi)
        state = LiveRegions(state.must & rest, state.may & rest, state.contents)
        if must:
            state = self.read(state, source.must, source.may)
        return self.read(state, NO_REGIONS, source.must | source.may) if may else state

    def read(self, state: LiveRegions, must: RegionSet, may: RegionSet) -> LiveRegions:
        if not (must & ~state.must or may & ~state.may):
            return state
        fresh = self.points_to.contents((must | may) & ~self.points_to.phis)
        return LiveRegions(state.must | must, state.may | may, state.contents | fresh)

    def killed(self, state: LiveRegions, must_defs: RegionSet) -> LiveRegions:
        """The state in front of a point that writes all of `must_defs`, phis among them."""
        parts = related = must_defs
        for number in members(must_defs) if self.points_to.views else ():
            parts |= self.points_to.descendants[number]
            related |= self.points_to.ancestors[number] | self.points_to.descendants[number]
        return LiveRegions(state.must & ~related, state.may & ~related, state.contents & ~parts)


# -- live ranges -------------------------------------------------------------------------------------------


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


def find_live_ranges(points_to: PointsTo, effects: Sequence[Effect], numbers: Iterable[int]) -> LiveRanges:
    """The live ranges of roots by number."""
    positions = _Positions(points_to, region_set(numbers))
    phis = positions.phis
    touched = {point: effect.touched for point, effect in enumerate(effects) if effect is not NO_EFFECT}
    begins = positions.begins(touched)
    for point, later in _Liveness(points_to, effects).behind_points():
        if point not in touched:
            continue
        while begins and begins[-1][0] > point:
            positions.waiting |= begins.pop()[1]
        now = touched[point]
        live = positions.roots(now | later.contents)
        undecided = (now | later.must | later.may) & phis if phis else NO_REGIONS
        positions.take(point, live, undecided)
    return positions.ranges()


class _Positions:
    """Counts positions from the last one on, and notes at which something becomes live or dead."""

    def __init__(self, points_to: PointsTo, wanted: RegionSet) -> None:
        self.points_to, self.wanted = points_to, wanted
        phis = (RegionSet(1 << number) for number in members(points_to.phis))
        self.phis = NO_REGIONS  # those that may be one of the wanted roots
        for phi in phis:
            self.phis |= phi if self.roots(points_to.resolve(phi)) else NO_REGIONS
        self.undecided = NO_REGIONS  # the phis of the points in a row `run`, the last one first
        self.run: list[tuple[int, RegionSet, RegionSet]] = []
        self.points: list[int] = []  # the program point of each position, the last one first
        self.live = NO_REGIONS
        self.waiting = NO_REGIONS  # the roots that are first touched behind where the walk is
        self.open: dict[int, int] = {}  # by root that is live, the last position at which it is
        self.found: dict[int, list[tuple[int, int]]] = {}

    def roots(self, numbers: RegionSet) -> RegionSet:
        """The wanted roots of regions; phis left out."""
        if self.points_to.views:
            for view in members(numbers & self.points_to.views):
                numbers |= RegionSet(1 << self.points_to.regions[view].root)
        return numbers & self.wanted

    def take(self, point: int, live: RegionSet, undecided: RegionSet) -> None:
        """Take a point at which the roots `live` are needed, whatever the phis that are `undecided` are."""
        if undecided != self.undecided:
            self.flush()
            self.undecided = undecided
        if undecided:
            self.run.append((point, live, self.waiting))
        else:
            self.tick(point, live & ~self.waiting)

    def flush(self) -> None:
        """Count the positions of points in a row, once for each outcome of their phis."""
        for chosen in reversed(self.outcomes(self.undecided)) if self.run else ():
            for point, live, waiting in self.run:
                self.tick(point, (live | chosen) & ~waiting)
        self.run = []

    def tick(self, point: int, live: RegionSet) -> None:
        """Count the position in front of those so far, at which the roots `live` are needed."""
        changed, position = int(live) ^ int(self.live), len(self.points)
        while changed:
            root = changed.bit_length() - 1
            changed ^= 1 << root
            if root in self.open:
                self.found.setdefault(root, []).append((position, self.open.pop(root)))
            else:
                self.open[root] = position
        self.live = live
        self.points.append(point)

    def ranges(self) -> LiveRanges:
        """The live ranges, once all points were taken."""
        self.flush()
        self.tick(-1, NO_REGIONS)
        self.points.pop()
        self.points.reverse()
        count, points = len(self.points), self.points
        found: dict[int, LiveRange] = {}
        for root in sorted(self.found):
            live = tuple([(count - a, count - b) for a, b in self.found[root][::-1]])
            first, last = points[live[0][0]], points[live[-1][1] - 1]
            if len(live) > 1:  # paths are laid out one behind the other
                first = min(points[begin] for begin, _ in live)
                last = max(points[end - 1] for _, end in live)
            found[root] = LiveRange(live, first, last)
        return LiveRanges(found, points)

    def begins(self, touched: Mapping[int, RegionSet]) -> list[tuple[int, RegionSet]]:
        """The points that touch roots first, in order, each with these roots."""
        found: list[tuple[int, RegionSet]] = []
        before = NO_REGIONS
        for point in sorted(touched):
            now = touched[point]
            if now & ~before:
                fresh = self.roots(self.points_to.resolve(now)) & ~before
                before |= fresh | now
                if fresh:
                    found.append((point, fresh))
        return found

    # -- phis ------------------------------------------------------------------------------------------------

    def outcomes(self, undecided: RegionSet) -> Sequence[RegionSet]:
        """The sets of roots that undecided phis may be; sets within another set are left out."""
        if not undecided:
            return (NO_REGIONS,)
        phis = members(self.points_to.with_choices(undecided) & self.points_to.phis)
        branches = sorted({self.points_to.regions[number].branch for number in phis})
        if len(branches) > _MOST_BRANCHES:
            return (self.roots(self.points_to.resolve(undecided)),)
        ways = product((0, 1), repeat=len(branches))
        found = dict.fromkeys(self._chosen(undecided, dict(zip(branches, way, strict=True))) for way in ways)
        return [one for one in found if not any(one != other and one & other == one for other in found)]

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

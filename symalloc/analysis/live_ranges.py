"""When the bytes of an allocation are needed: from its first access to its last, on each path by itself.

Time is counted in *moments*: one for each step that touches memory, in the order of the text.  Where an If
yields one of two allocations, the steps behind it are counted once for each, as long as that matters, so
that the two are never there at one moment.  Two allocations may lie in the same place if and only if no
moment is in the ranges of both.  Nothing else may be read from the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple, TypeAlias

from symalloc.analysis.effects import NO_EFFECT, Effect
from symalloc.analysis.liveness import read_after
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.regions import RegionKind, members
from symalloc.program.control_flow import PointKind

Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted half-open intervals [begin, end) of moments."""

_MOST_CHOICES = 5
"""From how many undecided Ifs at once their results count as all there: 2**5 numberings are enough."""


class LiveRange(NamedTuple):
    """The moments of one allocation, and the indices of its first and its last step."""

    live: Intervals
    first: int
    last: int


class LiveRanges(NamedTuple):
    """The live ranges of roots by their numbers; none for what nothing touches.

    `steps` holds the step of each moment.
    """

    of: Mapping[int, LiveRange]
    steps: Sequence[int]


def live_ranges(
    points_to: PointsTo, effects: Sequence[Effect], wanted: int, momentary: Mapping[int, int] | None = None
) -> LiveRanges:
    """The live ranges of the roots `wanted` (a set of regions).

    `momentary` gives for steps the number, from `len(points_to.regions)` on, of memory needed there alone.
    """
    brief = {step: 1 << number for step, number in (momentary or {}).items()}
    clock = _Clock(points_to=points_to, wanted=wanted | sum(brief.values()))
    behind, since = read_after(points_to, effects)
    begun, run = 0, _Run()
    for index, effect in enumerate(effects):
        if effect is NO_EFFECT:
            continue
        now = _touched(effect)
        is_test = points_to.cfg.points[index].kind is PointKind.BRANCH
        later = since[index] if is_test else behind[index]
        begun |= clock.roots(points_to.resolve(now))
        there = (clock.roots(now | later.contents) & begun) | brief.get(index, 0)
        undecided = (now | later.must | later.may) & clock.phis
        if undecided != run.undecided:
            clock.take(run)
            run = _Run(undecided=undecided)
        run.steps.append((index, there))
    clock.take(run)
    return LiveRanges(clock.ranges(), clock.steps)


def _touched(effect: Effect) -> int:
    reads, writes = effect.reads | effect.may_reads, effect.writes | effect.may_writes
    return reads | writes | effect.may_defs | effect.defs


@dataclass(slots=True)
class _Run:
    """Steps in a row at which the values of the same Ifs are `undecided`, each with the roots that are
    there whatever those values are.
    """

    undecided: int = 0
    steps: list[tuple[int, int]] = field(default_factory=list)


class _Clock:
    """Counts moments, and notes what is there at each."""

    def __init__(self, *, points_to: PointsTo, wanted: int) -> None:
        self.points_to, self.wanted = points_to, wanted
        self.phis = self._choices_that_matter()
        self.steps: list[int] = []  # the step of each moment
        self.there = 0
        self.opened: dict[int, int] = {}
        self.found: dict[int, list[tuple[int, int]]] = {}

    def _choices_that_matter(self) -> int:
        """The values of Ifs that may be one of the wanted roots."""
        choices = members(self.points_to.phis)
        return sum(1 << i for i in choices if self.roots(self.points_to.resolve(1 << i)))

    def roots(self, bits: int) -> int:
        """The wanted roots of regions; values of Ifs left out."""
        views = bits & self.points_to.views
        for view in members(views):
            bits |= 1 << self.points_to.regions[view].root
        return bits & self.wanted

    def take(self, run: _Run) -> None:
        """Counts the moments of a run, once for each way in which the Ifs may have gone."""
        for chosen in self.outcomes(run.undecided):
            for index, there in run.steps:
                self.tick(index, there | chosen)

    def tick(self, index: int, there: int) -> None:
        """One more moment, at which the roots `there` are needed."""
        moment = len(self.steps)
        self.steps.append(index)
        for root in members(self.there & ~there):
            self.close(root, moment)
        for root in members(there & ~self.there):
            self.opened[root] = moment
        self.there = there

    def close(self, root: int, moment: int) -> None:
        self.found.setdefault(root, []).append((self.opened.pop(root), moment))

    def ranges(self) -> dict[int, LiveRange]:
        """The live ranges, once all moments were counted."""
        for root in tuple(self.opened):
            self.close(root, len(self.steps))
        return {root: self._range(tuple(live)) for root, live in sorted(self.found.items())}

    def _range(self, live: Intervals) -> LiveRange:
        first = min(self.steps[begin] for begin, _ in live)
        return LiveRange(live, first, max(self.steps[end - 1] for _, end in live))

    # -- values of Ifs -----------------------------------------------------------------------------------

    def outcomes(self, undecided: int) -> Sequence[int]:
        """The sets of roots that the undecided values may be; sets within another set are left out."""
        if not undecided:
            return (0,)
        branches = sorted(self._branches(undecided))
        if len(branches) > _MOST_CHOICES:
            return (self.roots(self.points_to.resolve(undecided)),)
        ways = product((0, 1), repeat=len(branches))
        found = dict.fromkeys(self.chosen(undecided, dict(zip(branches, way, strict=True))) for way in ways)
        return [one for one in found if not any(one != other and one & other == one for other in found)]

    def _branches(self, undecided: int) -> set[int]:
        """The IF steps that decide the values, those within values included."""
        regions = self.points_to.regions
        every = _closure(self.points_to, undecided)
        return {regions[i].branch for i in members(every) if regions[i].kind is RegionKind.PHI}

    def chosen(self, undecided: int, sides: Mapping[int, int]) -> int:
        """The roots that the values are where the Ifs went to `sides`."""
        real, pending = 0, [undecided]
        while pending:
            bits = pending.pop()
            real |= bits & ~self.points_to.phis
            for choice in members(bits & self.points_to.phis):
                pending.extend(_sources(self.points_to, choice, sides))
        return self.roots(real)


def _sources(points_to: PointsTo, choice: int, sides: Mapping[int, int]) -> Iterator[int]:
    region = points_to.regions[choice]
    if region.sources is not None:
        cell = region.sources[sides[region.branch]]
        yield cell.must | cell.may


def _closure(points_to: PointsTo, bits: int) -> int:
    """`bits` and all that the values of Ifs among them may be, on the way too."""
    seen, pending = 0, [bits]
    while pending:
        fresh = pending.pop() & ~seen
        seen |= fresh
        for index in members(fresh & points_to.phis):
            for cell in points_to.regions[index].sources or ():
                pending.append(cell.must | cell.may)
    return seen

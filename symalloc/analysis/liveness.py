"""Regions written before and read after each program point, on some path.

Liveness of contents: a region is live behind a point if some path from it reads the region before every byte
is written anew.  A PHI (the value of an If) that is read behind the If is, seen from within a block, only
what that block yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from symalloc.analysis.dataflow import DataflowProblem, States, backward, forward
from symalloc.analysis.effects import NO_EFFECT, Effect
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.regions import Pointees
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members
from symalloc.program.record import from_fields


class WrittenRegions(NamedTuple):
    """Regions written on some path so far, and with them the parts of all of them."""

    whole: RegionSet = NO_REGIONS
    contents: RegionSet = NO_REGIONS


class LiveRegions(NamedTuple):
    """Regions read later.

    `must` on some path, `may` only if a call of unknown ownership returned its argument; `contents` are
    both, less the phis, with the parts of all of them, and what is left of those that were rewritten in
    part before.
    """

    must: RegionSet = NO_REGIONS
    may: RegionSet = NO_REGIONS
    contents: RegionSet = NO_REGIONS


def written_regions(points_to: PointsTo, effects: Sequence[Effect]) -> States[WrittenRegions]:
    """The regions that some path to each point has written; parameters and constants are from the start."""
    given = points_to.constants
    for leaf in points_to.parameters:
        given |= leaf.must | leaf.may
    entry = WrittenRegions(given, points_to.contents(given))
    return forward(_Written(points_to, effects), entry)


def live_regions(points_to: PointsTo, effects: Sequence[Effect]) -> States[LiveRegions]:
    """The regions live in front of (`before`, live in) and behind (`after`, live out) each point."""
    return backward(_Liveness(points_to, effects), LiveRegions())


class _Written(DataflowProblem[WrittenRegions]):
    def __init__(self, points_to: PointsTo, effects: Sequence[Effect]) -> None:
        super().__init__(points_to.cfg)
        self.points_to, self.effects = points_to, effects

    def transfer(self, point: int, state: WrittenRegions) -> WrittenRegions:
        effect = self.effects[point]
        if effect is NO_EFFECT or not effect.written & ~state.whole:
            return state
        fresh = self.points_to.resolve(effect.written)
        return WrittenRegions(state.whole | fresh, state.contents | self.points_to.contents(fresh))

    def join(self, branch: int, then: WrittenRegions, otherwise: WrittenRegions) -> WrittenRegions:
        return WrittenRegions(then.whole | otherwise.whole, then.contents | otherwise.contents)


class _Liveness(DataflowProblem[LiveRegions]):
    def __init__(self, points_to: PointsTo, effects: Sequence[Effect]) -> None:
        super().__init__(points_to.cfg)
        self.points_to, self.effects = points_to, effects

    def transfer(self, point: int, state: LiveRegions) -> LiveRegions:
        effect = self.effects[point]
        if effect is NO_EFFECT:
            return state
        if effect.must_defs & (state.contents | state.must | state.may):
            state = self.killed(state, effect.must_defs)
        return self.read(state, effect.reads, effect.may_reads)

    def join(self, branch: int, then: LiveRegions, otherwise: LiveRegions) -> LiveRegions:
        return LiveRegions(*(a | b for a, b in zip(then, otherwise, strict=True)))

    def edge(self, branch: int, state: LiveRegions, *, then: bool) -> LiveRegions:
        """Replace the phis of this If that are live by what the block yields for them."""
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
        return from_fields(LiveRegions, (state.must | must, state.may | may, state.contents | fresh))

    def killed(self, state: LiveRegions, must_defs: RegionSet) -> LiveRegions:
        """The state in front of a point that writes all of `must_defs`, phis among them."""
        parts = related = must_defs
        for number in members(must_defs) if self.points_to.views else ():
            parts |= self.points_to.descendants[number]
            related |= self.points_to.ancestors[number] | self.points_to.descendants[number]
        return from_fields(
            LiveRegions, (state.must & ~related, state.may & ~related, state.contents & ~parts)
        )

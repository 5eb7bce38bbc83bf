"""The lifetimes of memory on each path through a function: of what may be planned, and of what is not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from symalloc.analysis.argument_binding import values_at_call
from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse_variant
from symalloc.analysis.liveness import Intervals, LiveRange
from symalloc.analysis.paths import enumerate_paths
from symalloc.analysis.regions import Region
from symalloc.planner.buffers.sizing import padded_size
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import AllocFresh, CallFunction, CallPacked, Program, Var
from symalloc.size.expr import Expr, symbol

_MOST_PATHS = 24


class UnplannedRange(NamedTuple):
    """Memory that is taken during the call, and that no plan places: `size` bytes while it is `live`.

    The size of what a callee takes that calls itself is not known (None).
    """

    size: Expr | None
    live: Intervals


class CalleeRange(NamedTuple):
    """A call of the function `name`, under way while it is `live`; `values` gives its symbols in ours."""

    name: str
    values: Mapping[str, Expr]
    live: Intervals

    def value(self, name: str) -> Expr:
        """The value of a symbol; one that nothing here gives is free."""
        return self.values.get(name, symbol(f"{self.name}.{name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLifetimes:
    """The lifetimes on one path: of each candidate by its number, and of memory that no plan places.

    `calls` are those of functions whose memory is known; what they return is not in it.  `steps` gives the
    program point of each position.  `tested` holds the last If on the path that a candidate decides, or
    behind which another path needs it, by number: it is there until then, in front of which memory for both
    sides is reserved.  `text`: this is no path but all of the text, which says how large arenas are, and
    nothing more.  `merged`: all of the text stands for its paths, which are too many.
    """

    lives: Sequence[Intervals]
    steps: Sequence[int]
    unplanned: Sequence[UnplannedRange] = ()
    calls: Sequence[CalleeRange] = ()
    tested: Mapping[int, int] = field(default_factory=dict)
    text: bool = False
    merged: bool = False


def path_lifetimes(
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    cfg: ControlFlowGraph,
    variables: Sequence[Var | None],
) -> Iterator[PathLifetimes]:
    """Yield the lifetimes of candidates, given by variable, on each path through a function, in points of it.

    What is returned on one path only is memory of the call's own on the others, beside which an arena may be
    held; and what a path needs at most says how much may be taken on any.  There are none where the function
    does not branch, or has too many paths.
    """
    paths = enumerate_paths(cfg, most=_MOST_PATHS) if cfg.joins else None
    if paths is None:
        return
    numbers = {var: number for number, var in enumerate(variables)}
    conditions = {
        branch: [numbers[var] for var in needed if var in numbers]
        for branch, needed in _conditions(analyses[cfg.function.name]).items()
    }
    joined = _joined(cfg)
    for sides, function in paths:
        tested = {number: branch for branch, _ in sides for number in conditions[branch]}
        analysis = analyse_variant(program, function, analyses)
        times = CandidateTimes(program, analysis, analyses, variables)
        yield times.lifetimes(variables, _points_in(cfg, analysis.cfg), joined, tested=tested)


def _points_in(cfg: ControlFlowGraph, path: ControlFlowGraph) -> Sequence[int]:
    """The points of a path in the graph of the whole function; an alias for an If is its BRANCH."""
    return [*(cfg.starts[made.var] for made in path.function.body.instructions), cfg.exit]


def _conditions(analysis: FunctionAnalysis) -> Mapping[int, frozenset[Var]]:
    """The allocations that each If or what comes behind it needs, by the number of its BRANCH."""
    points_to = analysis.points_to

    yielded = {
        point: points_to.roots(points_to.regions_of(branch.var))
        for point in analysis.cfg.joins
        if (branch := analysis.cfg.points[point].instruction) is not None
    }

    def needed(point: int) -> Iterator[Var]:
        live = analysis.live.before[point]
        regions = live.must | live.may | live.contents
        for var in analysis.cfg.points[point].uses:
            regions |= points_to.regions_of(var)
        later = (root for branch, roots in yielded.items() if branch >= point for root in roots)
        for root in {*points_to.roots(regions), *later}:
            made = points_to.regions[root].var
            if made is not None:
                yield made

    return {point: frozenset(needed(point)) for point in analysis.cfg.joins}


def _joined(cfg: ControlFlowGraph) -> frozenset[Var]:
    """The results of all Ifs."""
    branches = (cfg.points[number].instruction for number in cfg.joins)
    return frozenset(branch.var for branch in branches if branch is not None)


class CandidateTimes:
    """The live ranges `of` candidates, by variable, and of other memory that is taken during the call.

    What is returned is live from its first use to the end.  What a packed function may keep is live to its
    last use, where the machine frees it; beside one that does keep it a plan may hold more than none.
    """

    def __init__(
        self,
        program: Program,
        analysis: FunctionAnalysis,
        analyses: Mapping[str, FunctionAnalysis],
        variables: Collection[Var | None],
        *,
        once: bool = False,
    ) -> None:
        """Find the live ranges; with `once` each point counts once, whatever Ifs yield."""
        self.program, self.analysis = program, analysis
        self.calls: list[CallFunction] = []
        self.given: list[Region] = []
        allocations = analysis.allocations
        numbers = self._numbers(analyses)
        self.returned = self._roots_returned()
        kept = {
            var
            for var, made in allocations.items()
            if made.escape == RETURNED or made.number in self.returned
        }
        wanted = (*numbers.values(), *(region.number for region in self.given))
        found = analysis.live_ranges(wanted, once=once)
        self.regions = found.of
        self.points = found.points
        self.of: dict[Var | None, LiveRange] = {
            var: self._held(found.of[number]) if var in kept else found.of[number]
            for var, number in numbers.items()
            if number in found.of
        }

    def _numbers(self, analyses: Mapping[str, FunctionAnalysis]) -> dict[Var, int]:
        """The numbers of allocations, of calls that take memory, and of what they return."""
        numbers: dict[Var, int] = {}
        for point, made in self.analysis.cfg.of_type(AllocFresh, CallFunction):
            if isinstance(made, AllocFresh):
                numbers[made.var] = self.analysis.allocations[made.var].number
            elif isinstance(made, CallFunction) and made.name in analyses:
                numbers[made.var] = len(self.analysis.points_to.regions) + point
                if not analyses[made.name].recursive:
                    self.calls.append(made)
        for region in self.analysis.points_to.regions:
            made_by = region.instruction
            if region.parent is not None or region.external:
                continue
            if isinstance(made_by, CallPacked):
                numbers.setdefault(made_by.var, region.number)  # nobody knows how much that is
            elif isinstance(made_by, CallFunction):
                self.given.append(region)
        return numbers

    def _roots_returned(self) -> frozenset[int]:
        points_to = self.analysis.points_to
        return frozenset(points_to.roots(points_to.regions_of(self.analysis.cfg.function.body.result)))

    def _held(self, time: LiveRange) -> LiveRange:
        return LiveRange(((time.live[0][0], len(self.points)),), time.first, self.points[-1])

    def lifetimes(
        self,
        variables: Sequence[Var | None],
        points: Sequence[int],
        joined: Collection[Var] = (),
        *,
        tested: Mapping[int, int] = MappingProxyType({}),
        text: bool = False,
        merged: bool = False,
    ) -> PathLifetimes:
        """Return the lifetimes with what no plan places: all but `variables`, to whose `points` ours map.

        TVM holds what an If yields, its result one of `joined`, until there, whether anything uses it or not.
        """
        placed = {*variables, *(call.var for call in self.calls)}
        yielded: dict[int, int] = {}
        until: dict[Var | None, int] = {}
        for point, made in self.analysis.cfg.instructions if joined else ():
            if made.var in joined:
                points_to = self.analysis.points_to
                roots = points_to.roots(points_to.regions_of(made.var))
                yielded.update(dict.fromkeys(roots, bisect_right(self.points, point)))
                until.update((points_to.regions[root].var, yielded[root]) for root in roots)

        def live(var: Var | None) -> Intervals:
            time = self.of.get(var)
            return () if time is None else _prolonged(time.live, until.get(var, 0))

        unplanned = [
            UnplannedRange(padded_size(self._nbytes(var)), live(var)) for var in self.of if var not in placed
        ]
        return PathLifetimes(
            lives=[live(var) for var in variables],
            steps=[points[index] for index in self.points],
            unplanned=[*unplanned, *self._returned(yielded)],
            calls=tuple(
                CalleeRange(
                    call.name,
                    values_at_call(self.program.functions[call.name], call),
                    self.of[call.var].live,
                )
                for call in self.calls
                if call.var in self.of
            ),
            tested=tested,
            text=text,
            merged=merged,
        )

    def _nbytes(self, var: Var | None) -> Expr | None:
        made = None if var is None else self.analysis.allocations.get(var)
        return None if made is None else made.nbytes

    def _returned(self, yielded: Mapping[int, int]) -> Iterator[UnplannedRange]:
        """Results of callees, each from behind the call to its last use, or to where an If has yielded it."""
        for region in self.given:
            time = self.regions.get(region.number)
            if time is None:
                continue
            held = self._held(time) if region.number in self.returned else time
            (begin, end), *rest = _prolonged(held.live, yielded.get(region.number, 0))
            behind = (*(((begin + 1, end),) if begin + 1 < end else ()), *rest)
            if behind:
                yield UnplannedRange(padded_size(region.nbytes), behind)


def _prolonged(live: Intervals, until: int) -> Intervals:
    """Return a live range that lasts at least to the position `until`."""
    *before, (begin, end) = live
    return live if end >= until else (*before, (begin, until))

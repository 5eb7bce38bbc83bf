"""What lives when on each way through a function that branches.

What is returned on one way only is memory of the call's own on the others, beside which an arena may be held;
and what a way needs at most says how much may be taken on any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse_variant
from symalloc.analysis.paths import enumerate_paths
from symalloc.analysis.sets import region_set
from symalloc.planner.buffers.arena_assignment import PathLifetimes, UnplannedRange
from symalloc.planner.buffers.sizing import reckoned
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.model import AllocFresh, CallFunction, Function, Program, Var

_MOST_WAYS = 16


def path_lifetimes(
    program: Program, analyses: Mapping[str, FunctionAnalysis], cfg: ControlFlowGraph, buffers: Sequence[Var]
) -> list[PathLifetimes]:
    """One for each way through a function; none where it does not branch, or there are too many ways.

    `buffers` are the variables of what may be planned, by number.
    """
    if not cfg.joins:
        return []
    ways = enumerate_paths(cfg.function, most=_MOST_WAYS) or ()
    return [
        _PathAnalysis(program, way, buffers, analyses).timeline(cfg.starts, len(cfg.points) - 1)
        for way in ways
    ]


def outermost_ifs(cfg: ControlFlowGraph) -> dict[int, int]:
    """For each point within an If the BRANCH of the outermost one."""
    found: dict[int, int] = {}
    for index, point in enumerate(cfg.points):
        if point.branch >= 0:
            found[index] = found.get(point.branch, point.branch)
    return found


class _PathAnalysis:
    """A function as it runs on one way; `numbers` are those of live ranges, by variable."""

    def __init__(
        self,
        program: Program,
        way: Function,
        buffers: Sequence[Var],
        analyses: Mapping[str, FunctionAnalysis],
    ) -> None:
        self.seen = analyse_variant(program, way, analyses)
        self.regions = len(self.seen.points_to.regions)
        self.buffers = buffers
        self.numbers = dict(self._numbered(frozenset(buffers), analyses))
        inside = region_set(number for number in self.numbers.values() if number < self.regions)
        calls = {n - self.regions: n for n in self.numbers.values() if n >= self.regions}
        self.times = self.seen.live_ranges(inside, calls)

    def _numbered(
        self, buffers: frozenset[Var], analyses: Mapping[str, FunctionAnalysis]
    ) -> Iterator[tuple[Var, int]]:
        for point, made in self.seen.cfg.instructions:
            if isinstance(made, AllocFresh):
                yield made.var, self.seen.points_to.allocated(made.var).number
            elif isinstance(made, CallFunction):
                callee = analyses.get(made.name)
                if made.var in buffers or (callee is not None and callee.recursive):
                    yield made.var, self.regions + point

    def timeline(self, steps: Mapping[Var, int], end: int) -> PathLifetimes:
        """With the steps of the function as a whole, where `end` is the last."""
        here = [end if s.instruction is None else steps[s.instruction.var] for s in self.seen.cfg.points]
        found = (self.times.of.get(self.numbers.get(var, -1)) for var in self.buffers)
        return PathLifetimes(
            lives=[() if time is None else time.live for time in found],
            steps=[here[index] for index in self.times.points],
            strangers=list(self.strangers()),
        )

    def strangers(self) -> Iterator[UnplannedRange]:
        """What is taken on this way, has no place, and does not outlive the call."""
        for var, number in self.numbers.items():
            time = self.times.of.get(number)
            if time is None or var in self.buffers or number in self.seen.escapes:
                continue
            nbytes = self.seen.points_to.regions[number].nbytes if number < self.regions else None
            yield UnplannedRange(size=reckoned(nbytes), live=time.live)

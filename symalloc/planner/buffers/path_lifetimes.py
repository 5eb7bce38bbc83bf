"""What lives when on each way through a function that branches.

What is returned on one way only is memory of the call's own on the others, beside which an arena may be held;
and what a way needs at most says how much may be taken on any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from symalloc.analysis.escapes import escapes
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.live_ranges import live_ranges
from symalloc.analysis.paths import ways_through
from symalloc.analysis.regions import pointees_of
from symalloc.planner.buffers.arena_assignment import PathLifetimes, UnplannedRange
from symalloc.planner.buffers.sizing import reckoned
from symalloc.program.control_flow import ControlFlowGraph, PointKind
from symalloc.program.model import AllocFresh, CallFunction, Function, Program, Var

_MOST_WAYS = 16


def path_lifetimes(
    program: Program, analyses: Mapping[str, FunctionAnalysis], cfg: ControlFlowGraph, buffers: Sequence[Var]
) -> list[PathLifetimes]:
    """One for each way through a function; none where it does not branch, or there are too many ways.

    `buffers` are the variables of what may be planned, by number.
    """
    if all(step.kind is not PointKind.BRANCH for step in cfg.points):
        return []
    ways = ways_through(cfg.function, most=_MOST_WAYS) or ()
    recursive = frozenset(name for name, analysis in analyses.items() if analysis.recursive)
    steps = cfg.numbers
    return [
        _PathAnalysis(program, way, buffers, recursive).timeline(steps, len(cfg.points) - 1) for way in ways
    ]


def outermost_ifs(cfg: ControlFlowGraph) -> dict[int, int]:
    """For each step within an If the IF step of the outermost one."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for index, step in enumerate(cfg.points):
        if opened:
            found[index] = opened[0]
        if step.kind is PointKind.BRANCH:
            opened.append(index)
        elif step.kind is PointKind.JOIN:
            opened.pop()
    return found


class _PathAnalysis:
    """A function as it runs on one way; `numbers` are those of live ranges, by variable."""

    def __init__(
        self, program: Program, way: Function, buffers: Sequence[Var], recursive: frozenset[str]
    ) -> None:
        functions = {**program.functions, way.name: way}
        self.seen = analyse(replace(program, functions=functions))[way.name]
        self.regions = len(self.seen.points_to.regions)
        self.buffers = buffers
        self.numbers = dict(self._numbered(frozenset(buffers), recursive))
        inside = sum(1 << number for number in self.numbers.values() if number < self.regions)
        calls = {n - self.regions: n for n in self.numbers.values() if n >= self.regions}
        self.times = live_ranges(self.seen.points_to, self.seen.effects, inside, calls)

    def _numbered(self, buffers: frozenset[Var], recursive: frozenset[str]) -> Iterator[tuple[Var, int]]:
        for index, step in enumerate(self.seen.cfg.points):
            made = step.instruction
            if isinstance(made, AllocFresh):
                yield made.var, pointees_of(self.seen.points_to.values[made.var])[0].bit_length() - 1
            elif isinstance(made, CallFunction) and (made.var in buffers or made.name in recursive):
                yield made.var, self.regions + index

    def timeline(self, steps: Mapping[Var, int], end: int) -> PathLifetimes:
        """With the steps of the function as a whole, where `end` is the last."""
        here = [end if s.instruction is None else steps[s.instruction.var] for s in self.seen.cfg.points]
        found = (self.times.of.get(self.numbers.get(var, -1)) for var in self.buffers)
        return PathLifetimes(
            lives=[() if time is None else time.live for time in found],
            steps=[here[index] for index in self.times.steps],
            strangers=list(self.strangers()),
        )

    def strangers(self) -> Iterator[UnplannedRange]:
        """What is taken on this way, has no place, and does not outlive the call."""
        escaping = escapes(self.seen)
        for var, number in self.numbers.items():
            time = self.times.of.get(number)
            if time is None or var in self.buffers or number in escaping:
                continue
            nbytes = self.seen.points_to.regions[number].nbytes if number < self.regions else None
            yield UnplannedRange(size=reckoned(nbytes), live=time.live)

"""The tensors of a function that become buffers of a plan; the rest with the reason why not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from symalloc.analysis.argument_binding import bind_function
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse_variant
from symalloc.analysis.live_ranges import LiveRange
from symalloc.analysis.paths import enumerate_paths
from symalloc.planner.buffers.arena_assignment import (
    HELD,
    Candidate,
    PathLifetimes,
    UnplannedRange,
    assign_arenas,
)
from symalloc.planner.buffers.sizing import Sized, Sizes, padded_size
from symalloc.planner.memory_plan import Buffer, Plan, Unplanned
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import AllocFresh, CallFunction, Program, Var
from symalloc.size.expr import Expr

_MOST_PATHS = 16


def find_buffers(
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    name: str,
    sizes: Sizes,
    plans: Mapping[str, Plan],
) -> tuple[tuple[Buffer, ...], tuple[Unplanned, ...]]:
    """Return the buffers of the function `name`, and what stays as it is.

    Buffers are numbered from 0, arena by arena, in the order in which the arenas are reserved, then in that
    of the text.  `plans` are those of callees made before: a call of one is a buffer for each arena that the
    callee reserves at entry.
    """
    analysis = analyses[name]
    if analysis.recursive:
        return (), tuple(_unplanned_by_recursion(analysis))
    finder = _CandidateFinder(program, analyses, name, sizes, plans)
    times = _CandidateTimes(analysis, analyses, {c.buffer.var for c in finder.found})
    used = sorted((c for c in finder.found if c.buffer.var in times.of), key=lambda c: c.place)
    candidates = [c.living(number, times.of[c.buffer.var]) for number, c in enumerate(used)]
    unused = (c.unplanned("nothing uses it") for c in finder.found if c.buffer.var not in times.of)
    variables = [c.buffer.var for c in candidates]
    paths = list(_path_lifetimes(program, analyses, analysis.cfg, variables))
    if not paths:
        paths = [times.lifetimes(variables, range(len(analysis.cfg.points)))]
    found, held = assign_arenas(candidates, paths, _outermost_ifs(analysis.cfg))
    numbered = tuple(b if b.id == number else replace(b, id=number) for number, b in enumerate(found))
    return numbered, (*finder.left, *unused, *(c.unplanned(HELD) for c in held))


class _CandidateFinder:
    """The candidates of a function in the order of the text; `left` is what cannot be planned."""

    def __init__(
        self,
        program: Program,
        analyses: Mapping[str, FunctionAnalysis],
        name: str,
        sizes: Sizes,
        plans: Mapping[str, Plan],
    ) -> None:
        self.program, self.analyses, self.sizes, self.plans = program, analyses, sizes, plans
        self.analysis = analyses[name]
        self.found: list[Candidate] = []
        self.left: list[Unplanned] = []
        for _, instruction in self.analysis.cfg.instructions:
            if isinstance(instruction, AllocFresh):
                self.allocation(instruction)
            elif isinstance(instruction, CallFunction) and instruction.name in plans:
                self.call(instruction)

    def allocation(self, made: AllocFresh) -> None:
        region = self.analysis.points_to.allocated(made.var)
        reason = self.analysis.escapes.get(region.number)
        sized = self.sizes.of(region.nbytes) if reason is None else reason
        if isinstance(sized, Sized):
            self.add(sized, made.var, made.device, made.scope)
        else:
            self.left.append(Unplanned(name=made.var.name, reason=sized, nbytes=region.nbytes, var=made.var))

    def call(self, call: CallFunction) -> None:
        """Find the memory that a planned callee works in, which its caller sets aside: all of it or none.

        It is one buffer for each arena that the callee reserves at its entry, live at the call alone.
        """
        if self.analyses[call.name].recursive:
            return
        arenas = self.plans[call.name].entry_arenas
        found = self.sizes_at(call)
        if isinstance(found, str):
            if arenas:
                self.left.append(Unplanned(name=f"{call.name}()", reason=found, var=call.var))
            return
        for arena, sized in zip(arenas, found, strict=True):
            self.add(sized, call.var, arena.device, arena.scope, call.name)

    def add(self, sized: Sized, var: Var, device: int, scope: str, callee: str | None = None) -> None:
        buffer = Buffer(
            id=len(self.found),
            name=var.name if callee is None else f"{callee}()",
            size=sized.size,
            nbytes=sized.nbytes,
            device=device,
            scope=scope,
            var=var,
            callee=callee,
        )
        self.found.append(Candidate(buffer=buffer, definition=sized.definition))

    def sizes_at(self, call: CallFunction) -> list[Sized] | str:
        """Return the sizes of the callee's arenas, or the reason why one of them cannot be planned."""
        bound = bind_function(self.program.functions[call.name], call.arguments)
        sizes = [arena.size for arena in self.plans[call.name].entry_arenas]
        if any(not size.symbols <= bound.keys() for size in sizes):
            return "the arguments do not tell how much it needs"
        if call.kept:
            return "it is kept"
        found = [self.sizes.of(size.substitute(bound)) for size in sizes]
        reason = next((one for one in found if not isinstance(one, Sized)), None)
        return [one for one in found if isinstance(one, Sized)] if reason is None else reason


def _unplanned_by_recursion(analysis: FunctionAnalysis) -> Iterator[Unplanned]:
    """Yield every allocation of a function that calls itself."""
    reason = "its function calls itself: an arena would be held for every call under way"
    for _, made in analysis.cfg.instructions:
        if isinstance(made, AllocFresh):
            nbytes = analysis.points_to.allocated(made.var).nbytes
            yield Unplanned(name=made.var.name, reason=reason, nbytes=nbytes, var=made.var)


# -- paths --------------------------------------------------------------------------------------------------


def _path_lifetimes(
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
    paths = enumerate_paths(cfg.function, most=_MOST_PATHS) if cfg.joins else None
    for path in paths or ():
        analysis = analyse_variant(program, path, analyses)
        points = [
            len(cfg.points) - 1 if point.instruction is None else cfg.starts[point.instruction.var]
            for point in analysis.cfg.points
        ]
        yield _CandidateTimes(analysis, analyses, variables).lifetimes(variables, points)


class _CandidateTimes:
    """The live ranges `of` candidates, by variable, and of other memory that is taken during the call."""

    def __init__(
        self,
        analysis: FunctionAnalysis,
        analyses: Mapping[str, FunctionAnalysis],
        variables: Collection[Var | None],
    ) -> None:
        self.nbytes: dict[Var | None, Expr | None] = {}
        numbers: dict[Var, int] = {}
        for point, made in analysis.cfg.instructions:
            if isinstance(made, AllocFresh):
                region = analysis.points_to.allocated(made.var)
                if region.number not in analysis.escapes:
                    numbers[made.var] = region.number
                    self.nbytes[made.var] = region.nbytes
            elif isinstance(made, CallFunction):
                callee = analyses.get(made.name)
                if made.var in variables or (callee is not None and callee.recursive):
                    numbers[made.var] = len(analysis.points_to.regions) + point
        found = analysis.live_ranges(numbers.values())
        self.points = found.points
        self.of: dict[Var | None, LiveRange] = {
            var: found.of[number] for var, number in numbers.items() if number in found.of
        }

    def lifetimes(self, variables: Sequence[Var | None], points: Sequence[int]) -> PathLifetimes:
        """Return the lifetimes with what no plan places: all but `variables`, to whose `points` ours map."""
        placed = frozenset(variables)
        return PathLifetimes(
            lives=[self.of[var].live if var in self.of else () for var in variables],
            steps=[points[index] for index in self.points],
            unplanned=[
                UnplannedRange(padded_size(self.nbytes.get(var)), time.live)
                for var, time in self.of.items()
                if var not in placed
            ],
        )


def _outermost_ifs(cfg: ControlFlowGraph) -> dict[int, int]:
    """Return for each point within an If the BRANCH of the outermost one."""
    found: dict[int, int] = {}
    for number, point in enumerate(cfg.points):
        if point.branch >= 0:
            found[number] = found.get(point.branch, point.branch)
    return found

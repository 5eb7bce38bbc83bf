"""The tensors of a function that become buffers of a plan; the rest with the reason why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from symalloc.analysis.argument_binding import bind_function
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse_variant
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
from symalloc.program.ir import AllocFresh, CallFunction, Function, Program, Var
from symalloc.size.expr import Expr

_MOST_PATHS = 16
_NO_PLANS: Mapping[str, Plan] = MappingProxyType({})


def find_buffers(
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    name: str,
    sizes: Sizes,
    plans: Mapping[str, Plan] = _NO_PLANS,
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
    times = analysis.live_ranges([*(c.root for c in finder.found), *finder.taken])
    used = sorted((c for c in finder.found if c.root in times.of), key=lambda c: c.place)
    candidates = [candidate.living(number, times.of[candidate.root]) for number, candidate in enumerate(used)]
    unused = (c.unplanned("nothing uses it") for c in finder.found if c.root not in times.of)
    whole = PathLifetimes(
        lives=[c.buffer.live for c in candidates],
        steps=times.points,
        unplanned=[
            UnplannedRange(size, times.of[root].live)
            for root, size in finder.taken.items()
            if root in times.of
        ],
    )
    paths = _path_lifetimes(program, analyses, name, [c.buffer.var for c in candidates])
    found, held = assign_arenas(candidates, paths or [whole], _outermost_ifs(analysis.cfg))
    numbered = tuple(b if b.id == number else replace(b, id=number) for number, b in enumerate(found))
    return numbered, (*finder.left, *unused, *(c.unplanned(HELD) for c in held))


class _CandidateFinder:
    """The candidates of a function in the order of the text; `left` is what cannot be planned.

    Of that `taken` holds, by number, what is needed during the call alone, with its bytes; None where they
    are not known.
    """

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
        regions = len(self.analysis.points_to.regions)
        self.found: list[Candidate] = []
        self.left: list[Unplanned] = []
        self.taken: dict[int, Expr | None] = {}
        for point, instruction in self.analysis.cfg.instructions:
            if isinstance(instruction, AllocFresh):
                self.allocation(instruction)
            elif isinstance(instruction, CallFunction) and instruction.name in plans:
                self.call(instruction, regions + point)

    def allocation(self, made: AllocFresh) -> None:
        region = self.analysis.points_to.allocated(made.var)
        root, nbytes = region.number, region.nbytes
        reason = self.analysis.escapes.get(root)
        sized = self.sizes.of(nbytes) if reason is None else reason
        if isinstance(sized, Sized):
            self.add(root, sized, made.var, made.device, made.scope)
            return
        if reason is None:
            self.taken[root] = padded_size(nbytes)
        self.left.append(Unplanned(name=made.var.name, reason=sized, nbytes=nbytes, var=made.var))

    def call(self, call: CallFunction, root: int) -> None:
        """Find the memory that a planned callee works in, which its caller sets aside: all of it or none.

        It is one buffer for each arena that the callee reserves at its entry, live at the call alone.
        """
        if self.analyses[call.name].recursive:
            self.taken[root] = None
            return
        arenas = self.plans[call.name].entry_arenas
        found = self.sizes_at(call)
        if isinstance(found, str):
            if arenas:
                self.left.append(Unplanned(name=f"{call.name}()", reason=found, var=call.var))
            return
        for arena, sized in zip(arenas, found, strict=True):
            self.add(root, sized, call.var, arena.device, arena.scope, call.name)

    def add(
        self, root: int, sized: Sized, var: Var, device: int, scope: str, callee: str | None = None
    ) -> None:
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
        self.found.append(Candidate(root=root, buffer=buffer, definition=sized.definition))

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
    program: Program, analyses: Mapping[str, FunctionAnalysis], name: str, variables: Sequence[Var | None]
) -> list[PathLifetimes]:
    """Return the lifetimes of candidates, given by variable, on each path through the function `name`.

    What is returned on one path only is memory of the call's own on the others, beside which an arena may be
    held; and what a path needs at most says how much may be taken on any.  The list
    is empty where the function does not branch, or there are too many paths.
    """
    cfg = analyses[name].cfg
    if not cfg.joins:
        return []
    paths = enumerate_paths(cfg.function, most=_MOST_PATHS) or ()
    return [_on_path(program, path, cfg, variables, analyses) for path in paths]


def _on_path(
    program: Program,
    path: Function,
    cfg: ControlFlowGraph,
    variables: Sequence[Var | None],
    analyses: Mapping[str, FunctionAnalysis],
) -> PathLifetimes:
    """Return the lifetimes in the function as it runs on one path, in points of the whole `cfg`."""
    analysis = analyse_variant(program, path, analyses)
    regions = analysis.points_to.regions
    numbers: dict[Var, int] = {}
    for point, made in analysis.cfg.instructions:
        if isinstance(made, AllocFresh):
            numbers[made.var] = analysis.points_to.allocated(made.var).number
        elif isinstance(made, CallFunction):
            callee = analyses.get(made.name)
            if made.var in variables or (callee is not None and callee.recursive):
                numbers[made.var] = len(regions) + point
    times = analysis.live_ranges(numbers.values())
    lives = {var: times.of[number].live for var, number in numbers.items() if number in times.of}
    points = [
        len(cfg.points) - 1 if point.instruction is None else cfg.starts[point.instruction.var]
        for point in analysis.cfg.points
    ]
    return PathLifetimes(
        lives=[() if var is None else lives.get(var, ()) for var in variables],
        steps=[points[index] for index in times.points],
        unplanned=[
            UnplannedRange(padded_size(regions[n].nbytes) if n < len(regions) else None, lives[var])
            for var, n in numbers.items()
            if var in lives and var not in variables and n not in analysis.escapes
        ],
    )


def _outermost_ifs(cfg: ControlFlowGraph) -> dict[int, int]:
    """Return for each point within an If the BRANCH of the outermost one."""
    found: dict[int, int] = {}
    for number, point in enumerate(cfg.points):
        if point.branch >= 0:
            found[number] = found.get(point.branch, point.branch)
    return found

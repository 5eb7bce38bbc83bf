"""What of a function can be planned, as buffers; the rest with the reason why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.live_ranges import LiveRange
from symalloc.analysis.sets import region_set
from symalloc.planner.buffers.arena_assignment import (
    HELD,
    Candidate,
    PathLifetimes,
    UnplannedRange,
    assign_arenas,
)
from symalloc.planner.buffers.callee_memory import arenas_handed_down, sizes_at_call
from symalloc.planner.buffers.path_lifetimes import outermost_ifs, path_lifetimes
from symalloc.planner.buffers.sizing import Sized, Sizes, reckoned
from symalloc.planner.buffers.symbol_definitions import known_symbols
from symalloc.planner.memory_plan import Buffer, Plan, Unplanned
from symalloc.program.model import AllocFresh, CallFunction, Function, Program, Var
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.expr import Expr

_NO_PLANS: Mapping[str, Plan] = MappingProxyType({})


def find_buffers(
    function: Function,
    program: Program,
    domain: Domain,
    prover: Prover,
    plans: Mapping[str, Plan] = _NO_PLANS,
    analyses: Mapping[str, FunctionAnalysis] | None = None,
) -> tuple[tuple[Buffer, ...], tuple[Unplanned, ...]]:
    """The buffers of `function`, one of `program`, and what stays as it is.

    Buffers are numbered from 0, arena by arena, in the order in which the arenas are reserved, then in that
    of the text.  `plans` are those of callees made before: a call of one is a buffer for each arena that the
    callee reserves at entry.  `analyses` are those of `program`; they are made where they are not given.
    """
    analyses = analyse(program) if analyses is None else analyses
    analysis = analyses[function.name]
    sizes = Sizes(known_symbols(analysis.cfg), domain, prover)
    if analysis.recursive:
        return (), tuple(_left_by_recursion(analysis, sizes))
    finder = _CandidateFinder(program, analysis, sizes, plans, analyses)
    return _housed(analysis, finder.run(), finder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A buffer that could be; `root` is its number in the points-to analysis or, for a callee's memory, one
    behind those.
    """

    root: int
    name: str
    var: Var
    nbytes: Expr
    sized: Sized
    device: int
    scope: str
    callee: str | None = None

    def buffer(self, number: int, time: LiveRange) -> Buffer:
        """The buffer, once it is known when it lives."""
        return Buffer(
            id=number,
            name=self.name,
            size=self.sized.size,
            live=time.live,
            nbytes=self.nbytes,
            device=self.device,
            scope=self.scope,
            var=self.var,
            callee=self.callee,
            steps=(time.first, time.last),
        )

    def unplanned(self, reason: str) -> Unplanned:
        """What is left of the wish."""
        return Unplanned(name=self.name, reason=reason, nbytes=self.nbytes, var=self.var)


class _CandidateFinder:
    """Goes through the text; `left` is what cannot be planned.  Of that `taken` holds, by number, what is
    needed during the call alone, with its bytes; None where nobody knows how many.
    """

    def __init__(
        self,
        program: Program,
        analysis: FunctionAnalysis,
        sizes: Sizes,
        plans: Mapping[str, Plan],
        analyses: Mapping[str, FunctionAnalysis],
    ) -> None:
        self.program, self.analysis, self.sizes, self.plans = program, analysis, sizes, plans
        self.analyses = analyses
        self.escaping = analysis.escapes
        self.left: list[Unplanned] = []
        self.taken: dict[int, Expr | None] = {}

    def run(self) -> list[_Candidate]:
        """All that can be planned, in the order of the text."""
        found: list[_Candidate] = []
        for point, instruction in self.analysis.cfg.instructions:
            if isinstance(instruction, AllocFresh):
                found += self.allocation(instruction)
            elif isinstance(instruction, CallFunction) and instruction.name in self.plans:
                found += self.call(instruction, point)
        return found

    def allocation(self, made: AllocFresh) -> Iterator[_Candidate]:
        region = self.analysis.points_to.allocated(made.var)
        root, nbytes = region.number, region.nbytes
        reason = self.escaping.get(root)
        sized = self.sizes.of(nbytes)
        if reason is None and isinstance(sized, Sized) and nbytes is not None:
            yield _Candidate(
                root=root,
                name=made.var.name,
                var=made.var,
                nbytes=nbytes,
                sized=sized,
                device=made.device,
                scope=made.scope,
            )
            return
        if reason is None:
            self.taken[root] = reckoned(nbytes)
        why = reason or str(sized)
        self.left.append(Unplanned(name=made.var.name, reason=why, nbytes=nbytes, var=made.var))

    def call(self, call: CallFunction, index: int) -> Iterator[_Candidate]:
        """The memory that a planned callee works in; all of it or none."""
        plan = self.plans[call.name]
        if self.analyses[call.name].recursive:
            self.taken[len(self.analysis.points_to.regions) + index] = None
            return
        arenas = arenas_handed_down(plan)
        wanted = sizes_at_call(self.program.functions[call.name], plan, call)
        if call.kept or wanted is None:
            self.leave(
                call, "the arguments do not tell how much it needs" if wanted is None else "it is kept"
            )
            return
        sized = [self.sizes.of(size) for size in wanted]
        reasons = [one for one in sized if not isinstance(one, Sized)]
        if reasons:
            self.leave(call, reasons[0])
            return
        for arena, one, nbytes in zip(arenas, sized, wanted, strict=True):
            if isinstance(one, Sized):
                yield _Candidate(
                    root=len(self.analysis.points_to.regions) + index,
                    name=f"{call.name}()",
                    var=call.var,
                    nbytes=nbytes,
                    sized=one,
                    device=arena.device,
                    scope=arena.scope,
                    callee=call.name,
                )

    def leave(self, call: CallFunction, reason: str) -> None:
        if arenas_handed_down(self.plans[call.name]):
            self.left.append(Unplanned(name=f"{call.name}()", reason=reason, var=call.var))


def _housed(
    analysis: FunctionAnalysis, wishes: Sequence[_Candidate], finder: _CandidateFinder
) -> tuple[tuple[Buffer, ...], tuple[Unplanned, ...]]:
    """The buffers with their live ranges and arenas; what is better left alone joins what the finder left."""
    regions = len(analysis.points_to.regions)
    numbers = {w.root for w in wishes} | finder.taken.keys()
    roots = region_set(number for number in numbers if number < regions)
    brief = {number - regions: number for number in numbers if number >= regions}
    times = analysis.live_ranges(roots, brief)
    used = sorted((w for w in wishes if w.root in times.of), key=lambda w: (w.device, w.scope))
    residents = [
        Candidate(buffer=wish.buffer(number, times.of[wish.root]), needs=wish.sized.needs)
        for number, wish in enumerate(used)
    ]
    unused = (w.unplanned("nothing uses it") for w in wishes if w.root not in times.of)
    taken = ((size, times.of[number].live) for number, size in finder.taken.items() if number in times.of)
    strangers = [UnplannedRange(size=size, live=live) for size, live in taken]
    whole = PathLifetimes(
        lives=[resident.buffer.live for resident in residents], steps=times.points, strangers=strangers
    )
    paths = path_lifetimes(finder.program, finder.analyses, analysis.cfg, [wish.var for wish in used])
    found, alone = assign_arenas(residents, paths or (whole,), outermost_ifs(analysis.cfg))
    dynamic = (used[buffer.id].unplanned(HELD) for buffer in alone)
    numbered = tuple(b if b.id == i else replace(b, id=i) for i, b in enumerate(found))
    return numbered, (*finder.left, *unused, *dynamic)


def _left_by_recursion(analysis: FunctionAnalysis, sizes: Sizes) -> Iterator[Unplanned]:
    """Every allocation of a function that calls itself."""
    reason = "its function calls itself: an arena would be held for every call under way"
    for _, made in analysis.cfg.instructions:
        if isinstance(made, AllocFresh):
            nbytes = analysis.points_to.allocated(made.var).nbytes
            yield Unplanned(name=made.var.name, reason=reason, nbytes=nbytes, var=made.var)

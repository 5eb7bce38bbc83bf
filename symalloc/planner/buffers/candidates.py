"""The tensors of a function that become buffers of a plan; the rest with the reason why not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from symalloc.analysis.argument_binding import bind_function
from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.buffers.arena_assignment import (
    NOTHING_GIVEN_UP,
    ArenaAssignment,
    GivenUp,
)
from symalloc.planner.buffers.call_timeline import CallProfile
from symalloc.planner.buffers.candidate import Candidate, Memory
from symalloc.planner.buffers.path_lifetimes import CandidateTimes, path_lifetimes
from symalloc.planner.buffers.sample_shapes import ExtentBounds
from symalloc.planner.buffers.sizing import Sized, Sizes
from symalloc.planner.memory_plan import Buffer, Plan, Unplanned
from symalloc.planner.planner_options import PlanOptions
from symalloc.program.control_flow import BlockNesting
from symalloc.program.ir import AllocFresh, CallFunction, Program, Var
from symalloc.program.record import from_fields


class FoundBuffers(NamedTuple):
    """The buffers of a function, what stays as it is, and what a call takes, where others call it.

    `spread` is how many times their floor all arenas take together at worst, where several are needed.
    """

    buffers: tuple[Buffer, ...]
    unplanned: tuple[Unplanned, ...]
    profile: CallProfile | None
    spread: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCandidates:
    """The tensors of a function that may be planned, `assignment` to arenas, and what stays as it is.

    `assignment` is None where nothing may be planned, for the function calls itself.
    """

    assignment: ArenaAssignment | None
    left: tuple[Unplanned, ...]


def find_candidates(
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    name: str,
    sizes: Sizes,
    plans: Mapping[str, Plan],
    profiles: Mapping[str, CallProfile],
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    grounded: Collection[Var] | None = None,
) -> FoundCandidates:
    """Return what may be planned of the function `name`, with its lifetimes: all that no choice changes.

    `plans` are those of callees made before, and `profiles` tell what each takes: a call of one is a
    candidate for each arena that its caller brings.  `grounded` are the allocations that must start a
    storage, and so must what callees work in, where it is given; it is all of them where `options` ask for
    storages.
    """
    analysis = analyses[name]
    if analysis.recursive:
        return FoundCandidates(assignment=None, left=tuple(_unplanned_by_recursion(analysis)))
    if options.flavour == "storages":
        grounded = {made.var for _, made in analysis.cfg.of_type(AllocFresh)}
    finder = _CandidateFinder(program, analyses, name, sizes, plans, grounded)
    times = CandidateTimes(program, analysis, analyses, {found.var for found in finder.found})
    live = times.of
    used = sorted((f for f in finder.found if f.var in live), key=lambda f: f.place)
    candidates = [Candidate(found, number, live[found.var]) for number, found in enumerate(used)]
    unused = [found for found in finder.found if found.var not in live]
    variables = [found.var for found in used]
    paths = list(path_lifetimes(program, analyses, analysis.cfg, variables))
    merged = bool(analysis.cfg.joins) and not paths
    if merged:
        times = CandidateTimes(program, analysis, analyses, variables, once=True)
    points = range(analysis.cfg.exit + 1)
    paths.append(times.lifetimes(variables, points, text=bool(paths), merged=merged))
    function, reserve = analysis.cfg.function, options.bounds == "reserve"
    assignment = ArenaAssignment(
        candidates,
        paths,
        BlockNesting(analysis.cfg),
        ExtentBounds(
            function.declared_lower, function.declared_upper if reserve else {}, sizes.known.may_be_negative
        ),
        profiles,
        sizes.domain,
        called=analysis.called,
        whole=options.graphs,
        apart=options.constants_apart,
        lending=not reserve,
    )
    return FoundCandidates(assignment=assignment, left=(*finder.left, *map(_left, unused)))


def find_buffers(candidates: FoundCandidates, given_up: GivenUp = NOTHING_GIVEN_UP) -> FoundBuffers:
    """Return the buffers of a function, and what stays as it is, with no assignment that is `given_up`.

    Buffers are numbered from 0, arena by arena, in the order in which the arenas are reserved, then in that
    of the text.  A result is a buffer where others lie in its memory.
    """
    if candidates.assignment is None:
        return FoundBuffers((), candidates.left, None)
    found = candidates.assignment.assigned(given_up)
    numbered = tuple(b if b.id == number else replace(b, id=number) for number, b in enumerate(found.buffers))
    left = *candidates.left, *map(_left, found.lone)
    return FoundBuffers(numbered, left, found.profile, found.spread)


def _left(memory: Memory) -> Unplanned:
    return memory.unplanned(RETURNED if memory.returned else "nothing uses it")


class _CandidateFinder:
    """The candidates of a function in the order of the text; `left` is what cannot be planned."""

    def __init__(
        self,
        program: Program,
        analyses: Mapping[str, FunctionAnalysis],
        name: str,
        sizes: Sizes,
        plans: Mapping[str, Plan],
        grounded: Collection[Var] | None,
    ) -> None:
        self.program, self.analyses, self.sizes, self.plans = program, analyses, sizes, plans
        self.grounded = grounded
        self.analysis = analyses[name]
        self.starts = self.analysis.cfg.starts
        self.found: list[Memory] = []
        self.left: list[Unplanned] = []
        for _, instruction in self.analysis.cfg.of_type(AllocFresh, CallFunction):
            if isinstance(instruction, AllocFresh):
                self.allocation(instruction)
            elif isinstance(instruction, CallFunction) and instruction.name in plans:
                self.call(instruction)

    def allocation(self, made: AllocFresh) -> None:
        _, nbytes, reason = self.analysis.allocations[made.var]
        returned = reason == RETURNED
        sized = self.sizes.of(nbytes) if reason is None or returned else reason
        if isinstance(sized, Sized):
            self.add(sized, made.var, made.device, made.scope, returned=returned)
            return
        why = RETURNED if returned else sized
        if nbytes is None and made.inexact and reason is None:
            why = f"its shape is not known: {made.inexact}"
        self.left.append(Unplanned(name=made.var.name, reason=why, nbytes=nbytes, var=made.var))

    def call(self, call: CallFunction) -> None:
        """Find the memory that a planned callee works in, which its caller sets aside: all of it or none.

        It is one buffer for each arena that the callee leaves to it, live at the call alone.
        """
        if self.analyses[call.name].recursive:
            return
        arenas = self.plans[call.name].entry_arenas
        found = self.sizes_at(call)
        if isinstance(found, str):
            if arenas:
                self.left.append(Unplanned(name=f"{call.name}()", reason=found, var=call.var))
            return
        for number, (arena, sized) in enumerate(zip(arenas, found, strict=True)):
            self.add(sized, call.var, arena.device, arena.scope, callee=call.name, lent=number)

    def add(
        self,
        sized: Sized,
        var: Var,
        device: int,
        scope: str,
        *,
        callee: str | None = None,
        lent: int = 0,
        returned: bool = False,
    ) -> None:
        wanted = self.grounded is not None and (callee is not None or var in self.grounded)
        name = var.name if callee is None else f"{callee}()"
        grounded = wanted and not returned  # in whose own memory it starts
        place = device, scope, var, callee, grounded, lent, returned
        made = self.starts[var]
        self.found.append(
            from_fields(Memory, (name, sized.size, sized.nbytes, *place, sized.definition, made))
        )

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
    for var, made in analysis.allocations.items():
        yield Unplanned(name=var.name, reason=reason, nbytes=made.nbytes, var=var)

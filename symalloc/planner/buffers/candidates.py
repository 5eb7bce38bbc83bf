"""The tensors of a function that become buffers of a plan; the rest with the reason why not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from symalloc.analysis.argument_binding import bind_function
from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.liveness import LiveRange
from symalloc.planner.buffers.path_lifetimes import CandidateTimes, PathLifetimes, path_lifetimes
from symalloc.planner.buffers.sizing import Sized, Sizes
from symalloc.planner.memory_plan import Buffer, Plan, Unplanned
from symalloc.program.control_flow import BlockNesting
from symalloc.program.ir import AllocFresh, CallFunction, Program, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The memory of a function that may be planned, as buffers numbered in the order of devices and of the
    text; and what stays as it is (`left`).

    `paths` has the lifetimes on each path.  `called`: other functions call this one.
    """

    buffers: Sequence[Buffer] = ()
    left: Sequence[Unplanned] = ()
    paths: Sequence[PathLifetimes] = ()
    nesting: BlockNesting
    called: bool = False


def find_candidates(
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    name: str,
    sizes: Sizes,
    plans: Mapping[str, Plan],
    *,
    storages: bool = False,
    grounded: Collection[Var] | None = None,
) -> Candidates:
    """Return what may be planned of the function `name`, with its lifetimes: all that no choice changes.

    `plans` are those of callees made before: a call of one is a candidate for each arena that its caller
    brings. `grounded` are the allocations that must start a storage, and so must what callees work in, where
    it is given; it is all of them with `storages`.
    """
    analysis = analyses[name]
    nesting = BlockNesting(analysis.cfg)
    if analysis.recursive:
        return Candidates(left=tuple(_unplanned_by_recursion(analysis)), nesting=nesting)
    if storages:
        grounded = {made.var for _, made in analysis.cfg.of_type(AllocFresh)}
    finder = _CandidateFinder(program, analyses, name, sizes, plans, grounded)
    times = CandidateTimes(program, analysis, analyses, {found.var for found in finder.found})
    used = sorted((f for f in finder.found if f.var in times.of), key=lambda f: (f.device, f.scope))
    buffers = [_timed(buffer, number, times.of[buffer.var]) for number, buffer in enumerate(used)]
    unused = [found for found in finder.found if found.var not in times.of]
    variables = [found.var for found in used]
    paths = list(path_lifetimes(program, analyses, analysis.cfg, variables))
    merged = bool(analysis.cfg.joins) and not paths
    if merged:
        times = CandidateTimes(program, analysis, analyses, variables, once=True)
    points = range(analysis.cfg.exit + 1)
    paths.append(times.lifetimes(variables, points, text=bool(paths), merged=merged))
    left = (*finder.left, *(_left(one, "nothing uses it") for one in unused))
    return Candidates(buffers=buffers, left=left, paths=paths, nesting=nesting, called=analysis.called)


def _timed(buffer: Buffer, number: int, time: LiveRange) -> Buffer:
    return replace(buffer, id=number, live=time.live, steps=(time.first, time.last))


def _left(buffer: Buffer, reason: str) -> Unplanned:
    reason = RETURNED if buffer.returned else reason
    return Unplanned(name=buffer.name, reason=reason, nbytes=buffer.nbytes, var=buffer.var)


def left_alone(results: Iterable[Buffer]) -> Iterator[Unplanned]:
    """Yield results, which keep memory of their own."""
    return (_left(result, RETURNED) for result in results)


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
        self.found: list[Buffer] = []
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
        definition = sized.definition
        buffer = Buffer(
            id=len(self.found),
            name=var.name if callee is None else f"{callee}()",
            size=sized.size,
            nbytes=sized.nbytes,
            device=device,
            scope=scope,
            var=var,
            callee=callee,
            defined_by=None if definition is None else definition.var,
            known=-1 if definition is None else definition.step,
            made=self.starts[var],
            grounded=wanted and not returned,  # in whose own memory it starts
            lent=lent,
            returned=returned,
        )
        self.found.append(buffer)

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

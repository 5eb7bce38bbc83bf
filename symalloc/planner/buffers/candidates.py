"""The tensors of a function that become buffers of a plan; the rest with the reason why not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from symalloc.analysis.argument_binding import bind_function, values_at_call
from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse_variant
from symalloc.analysis.liveness import Intervals, LiveRange
from symalloc.analysis.paths import enumerate_paths
from symalloc.analysis.regions import Region
from symalloc.planner.buffers.sizing import Sized, Sizes, padded_size
from symalloc.planner.memory_plan import Buffer, Plan, Unplanned
from symalloc.program.control_flow import BlockNesting, ControlFlowGraph
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

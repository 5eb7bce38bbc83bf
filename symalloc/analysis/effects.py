"""Effects: the regions that each program point reads, writes and captures; from that, what escapes, and the
regions read after each program point, on some path.

Liveness of contents: a region is live behind a point if some path from it reads the region before every byte
is written anew.  A PHI (the value of an If) that is read behind the If is, seen from within a block, only
what that block yields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from symalloc.analysis.call_expansion import arguments_of
from symalloc.analysis.regions import (
    FunctionSummary,
    Pointees,
    PointsTo,
    RegionKind,
    TuplePointees,
    leaves_of,
    pointees_of,
    union_of,
)
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, only_member, region_set
from symalloc.program import ir
from symalloc.program.control_flow import PointKind
from symalloc.program.operands import inplace_operands, tensor_type
from symalloc.program.packed_contracts import OPERATORS_THAT_CAPTURE_NOTHING, SHAPE_ARGUMENTS
from symalloc.size.expr import ZERO


class Effect(NamedTuple):
    """The effect of one point on regions; `may_` where a function of unknown ownership stands between.

    `defs` are regions that come into being filled.  `may_defs` are arguments of a function that is not known
    to write but may: one that holds nothing yet counts as written, for it makes no sense to hand over memory
    without content otherwise.  `must_defs` (kills) are regions of which every byte is written, on every path
    through the point: nobody behind it needs what they held before.  `captures` are regions that the callee
    may hold on to when the point is over, other than by returning them as far as is known.  `ignores_offset`
    are parameters (and phis) handed over at byte 0 to what ignores or refuses the byte offset of a tensor.
    `looks` are regions among what is read of which the point looks at the shapes alone.
    """

    reads: RegionSet = NO_REGIONS
    may_reads: RegionSet = NO_REGIONS
    writes: RegionSet = NO_REGIONS
    may_writes: RegionSet = NO_REGIONS
    may_defs: RegionSet = NO_REGIONS
    defs: RegionSet = NO_REGIONS
    must_defs: RegionSet = NO_REGIONS
    captures: RegionSet = NO_REGIONS
    ignores_offset: RegionSet = NO_REGIONS
    looks: RegionSet = NO_REGIONS

    @property
    def written(self) -> RegionSet:
        """All that may hold content of this point behind it."""
        return self.writes | self.may_writes | self.may_defs | self.defs

    @property
    def changes(self) -> RegionSet:
        """All that may be written other than when it comes into being."""
        return self.writes | self.may_writes | self.may_defs

    @property
    def touched(self) -> RegionSet:
        """All that may be read or written."""
        reads, may_reads, writes, may_writes, may_defs, defs, *_ = self
        return reads | may_reads | writes | may_writes | may_defs | defs


NO_EFFECT = Effect()

RETURNED = "it is returned"
"""The reason of a root that escapes in no other way than that the function returns it."""


class EffectReader:
    """Reads point after point; `filled` are the regions that hold content so far, on some path.

    What calls that bind a variable of `unsure` read and write they do on some paths only.
    """

    def __init__(
        self,
        program: ir.Program,
        points_to: PointsTo,
        summaries: Mapping[str, FunctionSummary],
        unsure: frozenset[ir.Var] = frozenset(),
    ) -> None:
        self.program, self.points_to, self.summaries = program, points_to, summaries
        self.unsure = unsure
        self.tensors = ~points_to.storages
        self.filled = NO_REGIONS
        self.parameters = points_to.phis | points_to.given  # what may be a parameter

    @cached_property
    def used(self) -> frozenset[ir.Var]:
        """The variables that some point refers to."""
        return frozenset(var for point in self.points_to.cfg.points for var in point.uses)

    def read(self) -> Sequence[Effect]:
        """The effect of every point of the function."""
        cfg, defs = self.points_to.cfg, self.points_to.defs
        effects = [NO_EFFECT] * (cfg.exit + 1)
        for index, instruction in cfg.instructions:
            handler = _EFFECTS.get(type(instruction))
            if handler is None:
                continue
            found = handler(self, instruction)
            if index in defs:
                found = found._replace(defs=defs[index])
            self.filled |= found.written
            effects[index] = found
        for branch in cfg.joins:  # the virtual machine reads a condition at its pointer
            uses = cfg.points[branch].uses
            effects[branch] = Effect(*self.regions(uses), ignores_offset=self.at_byte_zero(uses))
        effects[cfg.exit] = Effect(*self.regions((cfg.function.body.result,)))
        return effects

    def regions(self, operands: Sequence[ir.Operand | None]) -> tuple[RegionSet, RegionSet]:
        """The tensors that operands point to: (must, may); of a storage what functions do somewhere on it."""
        return self.tensors_in(*self.points_to.pointees(operands))

    def tensors_in(self, must: RegionSet, may: RegionSet) -> tuple[RegionSet, RegionSet]:
        """The tensors among regions; for storages what functions do somewhere on them."""
        content = self.points_to.content_of_storages(must | may)
        return must & self.tensors, may & self.tensors | content

    def at_byte_zero(self, operands: Sequence[ir.Operand]) -> RegionSet:
        """The parameters that handles among `operands` begin with, and phis that may be one."""
        found = NO_REGIONS
        for operand in operands:
            for leaf in leaves_of(self.points_to.value_of(operand)):
                if leaf.must & self.parameters and ZERO in self.points_to.offsets_of(leaf):
                    found |= leaf.must & self.parameters
        return found

    def call_kernel(self, call: ir.CallKernel) -> Effect:
        kernel = self.program.kernels.get(call.kernel)
        if kernel is None:
            reads, may = self.regions(call.arguments)
            return Effect(reads, may, may_defs=reads)
        tensors = self.tensors
        reads = may_reads = writes = may_writes = must_defs = ignores = NO_REGIONS
        for parameter, argument in zip(kernel.parameters, call.arguments, strict=False):
            if type(parameter) is not ir.KernelBuffer:
                continue
            must, may = pointees_of(self.points_to.value_of(argument))
            must, may = must & tensors, may & tensors
            if parameter.reads:
                reads, may_reads = reads | must, may_reads | may
            if parameter.writes:
                writes, may_writes = writes | must, may_writes | may
            if parameter.must_def and must and not may and self.is_whole(must, argument):
                must_defs |= must
            if must & self.parameters and _refuses_offset(parameter):
                ignores |= self.at_byte_zero((argument,))
        return Effect(reads, may_reads, writes, may_writes, must_defs=must_defs, ignores_offset=ignores)

    def is_whole(self, must: RegionSet, argument: ir.Operand) -> bool:
        """True if `must` is one region, on each path, as large as the tensor `argument`."""
        only = only_member(must)
        region = None if only is None else self.points_to.regions[only]
        if region is None or region.path:
            return False
        if region.var is argument and region.kind is not RegionKind.PHI:
            return True
        kind = tensor_type(argument)
        nbytes = None if kind is None else kind.nbytes
        targets = self.points_to.targets(must)
        return nbytes is not None and all(
            t.certain and self.points_to.regions[t.region].nbytes == nbytes for t in targets
        )

    def call_tir(self, call: ir.CallTIR) -> Effect:
        writes = inplace_operands(call)
        kernel = self.program.kernels.get(call.kernel)
        pairs = zip(kernel.parameters, arguments_of(call), strict=False) if kernel is not None else ()
        strict = [argument for parameter, argument in pairs if _refuses_offset(parameter)]
        return Effect(
            *self.regions(call.inputs), *self.regions(writes), ignores_offset=self.at_byte_zero(strict)
        )

    def call_packed(self, call: ir.CallPacked) -> Effect:
        reads, may = self.regions(call.arguments)
        writes = [a for index, a in enumerate(call.arguments) if index in call.writes]
        known = call.pure or bool(call.writes)
        may_defs = NO_REGIONS if known else reads
        written, may_be_written = self.regions(writes)
        if not known:
            must, maybe = self.points_to.pointees(call.arguments)
            may_be_written |= self.points_to.content_of_storages(must | maybe)
        row = call.contract
        captures, may_be_kept = self.regions(
            [one for index, one in enumerate(call.arguments) if index in (row.keeps or ())]
        )
        captures |= may_be_kept
        if self.may_capture(call, reads):
            captures = reads | may
        return Effect(
            reads,
            may,
            written,
            may_be_written,
            may_defs=may_defs,
            captures=captures,
            ignores_offset=self.at_byte_zero(call.arguments) if row.byte_offset == "ignored" else NO_REGIONS,
            looks=reads | may if row.reads == frozenset() else NO_REGIONS,
        )

    def may_capture(self, call: ir.CallPacked, reads: RegionSet) -> bool:
        """True if a packed function may hold on to its arguments, or hand one back.

        One that is given memory without content fills it, as libraries do: what keeps tensors is given some.
        What it hands back matters only where the result is used.
        """
        unknown = call.ownership is ir.Ownership.UNKNOWN
        if unknown and call.var in self.used:
            return True
        if not unknown and not call.may_capture:
            return False
        filled, given = self.points_to.resolve(self.filled), members(self.points_to.resolve(reads))
        fresh = (n for n in given if isinstance(self.points_to.regions[n].instruction, ir.AllocFresh))
        return all(filled & self.points_to.family(RegionSet(1 << number)) for number in fresh)

    def call_function(self, call: ir.CallFunction) -> Effect:
        summary, callee = self.summaries.get(call.name), self.program.functions.get(call.name)
        if summary is None or callee is None or len(callee.params) != len(call.arguments):
            reads, may_reads = self.regions(call.arguments)
            return Effect(reads, may_reads, captures=reads | may_reads)
        leaves = [leaf for _, leaf in self.points_to.argument_leaves(call.arguments, callee)]
        reads, may_reads = self.tensors_in(*union_of(leaves, summary.reads))
        writes, may_writes = self.tensors_in(*union_of(leaves, summary.writes))
        if call.var in self.unsure:
            reads, may_reads, writes, may_writes = (
                NO_REGIONS,
                reads | may_reads,
                NO_REGIONS,
                writes | may_writes,
            )
        other, maybe = self.tensors_in(*union_of(leaves, summary.may_writes))
        kept, may_be_kept = self.tensors_in(*union_of(leaves, summary.captures))
        ignored = (leaves[number] for number in members(summary.ignores_offset))
        ignores = (leaf for leaf in ignored if ZERO in self.points_to.offsets_of(leaf))
        return Effect(
            reads,
            may_reads,
            writes,
            may_writes | other | maybe,
            captures=kept | may_be_kept,
            ignores_offset=pointees_of(TuplePointees(tuple(ignores)))[0],
        )

    def call_operator(self, call: ir.CallOperator) -> Effect:
        reads, may = self.regions(call.arguments)
        captures = NO_REGIONS if call.name in OPERATORS_THAT_CAPTURE_NOTHING else reads | may
        shapes = SHAPE_ARGUMENTS.get(call.name, frozenset())
        read, may_be_read = self.regions([a for i, a in enumerate(call.arguments) if i not in shapes])
        return Effect(reads, may, captures=captures, looks=(reads | may) & ~read & ~may_be_read)

    def check(self, checked: ir.Assert) -> Effect:
        return Effect(*self.regions(checked.reads)) if checked.reads else NO_EFFECT

    def view(self, view: ir.View) -> Effect:
        """An ensure_zero_offset that makes a copy reads what it copies; no other view touches anything."""
        made = self.points_to.only_region(self.points_to.value_of(view.var))
        if made is None or made.instruction is not view or made.kind is not RegionKind.FRESH:
            return NO_EFFECT
        return Effect(*self.regions((view.source,)))

    def not_understood(self, construct: ir.NotUnderstood) -> Effect:
        reads, may = self.regions(construct.reads)
        return Effect(reads, may, captures=reads | may)


_EFFECTS: dict[type, Callable[[EffectReader, Any], Effect]] = {
    ir.Assert: EffectReader.check,
    ir.CallFunction: EffectReader.call_function,
    ir.CallKernel: EffectReader.call_kernel,
    ir.CallOperator: EffectReader.call_operator,
    ir.CallPacked: EffectReader.call_packed,
    ir.CallTIR: EffectReader.call_tir,
    ir.NotUnderstood: EffectReader.not_understood,
    ir.View: EffectReader.view,
}


def _refuses_offset(parameter: ir.KernelBuffer | ir.KernelScalar) -> bool:
    """True for a buffer that must lie at byte 0 of the tensor that is given."""
    if not isinstance(parameter, ir.KernelBuffer):
        return False
    return parameter.dtype is not None and parameter.offset_factor is None


def find_escapes(points_to: PointsTo, effects: Sequence[Effect]) -> Mapping[int, str]:
    """The reason for each root that may be reached from outside when the function is over.

    The function returns it, or hands it to something that may keep or return it.  Such memory cannot lie in
    an arena that the next call, or another function, uses again.
    """
    found: dict[int, str] = {}
    for number, effect in enumerate(effects):
        keeper = points_to.cfg.points[number].instruction if effect.captures else None
        if keeper is not None:
            found = {**dict.fromkeys(points_to.roots(effect.captures), _reason(keeper)), **found}
    for root in points_to.roots(points_to.regions_of(points_to.cfg.function.body.result)):
        found.setdefault(root, RETURNED)
    return found


def _reason(keeper: ir.Instruction) -> str:
    match keeper:
        case ir.CallPacked(name=name):
            return f"the packed function `{name}` may keep or return it"
        case ir.CallOperator(name=name):
            return f"the operator `{name}` is not lowered"
        case ir.CallFunction(name=name):
            return f"the function `{name}` may keep it"
        case ir.NotUnderstood(what=what):
            return f"it is handed to a construct that is not understood ({what})"
    return "something may keep it"


class LiveRegions(NamedTuple):
    """Regions read later.

    `must` on some path, `may` only if a call of unknown ownership returned its argument; `contents` are
    both, less the phis, with the parts of all of them, and what is left of those that were rewritten in
    part before.
    """

    must: RegionSet = NO_REGIONS
    may: RegionSet = NO_REGIONS
    contents: RegionSet = NO_REGIONS


class _Liveness:
    def __init__(self, points_to: PointsTo, effects: Sequence[Effect]) -> None:
        self.points_to, self.effects = points_to, effects

    def behind_points(self) -> Iterator[tuple[int, LiveRegions]]:
        """Yield each point, from the last on, with what is live behind it."""
        state, points = LiveRegions(), self.points_to.cfg.points
        outside: list[LiveRegions] = []  # by open If: behind it, from ELSE on in front of its else-block
        for index in range(len(points) - 1, -1, -1):
            kind, branch = points[index].kind, points[index].branch
            if kind is PointKind.JOIN:
                outside.append(state)
                state = self.yielded(branch, state, then=False)
            elif kind is PointKind.ELSE:
                otherwise, state = state, self.yielded(branch, outside[-1], then=True)
                outside[-1] = otherwise
            elif kind is PointKind.BRANCH:
                state = LiveRegions(*(a | b for a, b in zip(state, outside.pop(), strict=True)))
            yield index, state
            state = self.in_front(index, state)

    def in_front(self, point: int, state: LiveRegions) -> LiveRegions:
        effect = self.effects[point]
        if effect is NO_EFFECT:
            return state
        killed = effect.must_defs
        if killed and killed & (state.contents | state.must | state.may):
            state = self.killed(state, killed)
        return self.read(state, effect.reads, effect.may_reads)

    def yielded(self, branch: int, state: LiveRegions, *, then: bool) -> LiveRegions:
        """Replace the phis of an If that are live by what one of its blocks yields for them."""
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
        return LiveRegions(state.must | must, state.may | may, state.contents | fresh)

    def killed(self, state: LiveRegions, must_defs: RegionSet) -> LiveRegions:
        """The state in front of a point that writes all of `must_defs`, phis among them."""
        parts = related = must_defs
        for number in members(must_defs) if self.points_to.views else ():
            parts |= self.points_to.descendants[number]
            related |= self.points_to.ancestors[number] | self.points_to.descendants[number]
        return LiveRegions(state.must & ~related, state.may & ~related, state.contents & ~parts)


# -- live ranges -------------------------------------------------------------------------------------------


Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted half-open intervals [begin, end) of positions."""

_MOST_BRANCHES = 5
"""The number of undecided Ifs up to which their outcomes are told apart: 2**5 numberings are enough."""


class LiveRange(NamedTuple):
    """The positions at which one allocation is live, and its first and last program point."""

    live: Intervals
    first: int
    last: int


class LiveRanges(NamedTuple):
    """The live ranges of roots by their numbers; none for what nothing touches.

    `points` holds the program point of each position.
    """

    of: Mapping[int, LiveRange]
    points: Sequence[int]


def find_live_ranges(points_to: PointsTo, effects: Sequence[Effect], numbers: Iterable[int]) -> LiveRanges:
    """The live ranges of roots by number."""
    positions = _Positions(points_to, region_set(numbers))
    phis = positions.phis
    touched = {point: effect.touched for point, effect in enumerate(effects) if effect is not NO_EFFECT}
    begins = positions.begins(touched)
    for point, later in _Liveness(points_to, effects).behind_points():
        if point not in touched:
            continue
        while begins and begins[-1][0] > point:
            positions.waiting |= begins.pop()[1]
        now = touched[point]
        live = positions.roots(now | later.contents)
        undecided = (now | later.must | later.may) & phis if phis else NO_REGIONS
        positions.take(point, live, undecided)
    return positions.ranges()


class _Positions:
    """Counts positions from the last one on, and notes at which something becomes live or dead."""

    def __init__(self, points_to: PointsTo, wanted: RegionSet) -> None:
        self.points_to, self.wanted = points_to, wanted
        phis = (RegionSet(1 << number) for number in members(points_to.phis))
        self.phis = NO_REGIONS  # those that may be one of the wanted roots
        for phi in phis:
            self.phis |= phi if self.roots(points_to.resolve(phi)) else NO_REGIONS
        self.undecided = NO_REGIONS  # the phis of the points in a row `run`, the last one first
        self.run: list[tuple[int, RegionSet, RegionSet]] = []
        self.points: list[int] = []  # the program point of each position, the last one first
        self.live = NO_REGIONS
        self.waiting = NO_REGIONS  # the roots that are first touched behind where the walk is
        self.open: dict[int, int] = {}  # by root that is live, the last position at which it is
        self.found: dict[int, list[tuple[int, int]]] = {}

    def roots(self, numbers: RegionSet) -> RegionSet:
        """The wanted roots of regions; phis left out."""
        if self.points_to.views:
            for view in members(numbers & self.points_to.views):
                numbers |= RegionSet(1 << self.points_to.regions[view].root)
        return numbers & self.wanted

    def take(self, point: int, live: RegionSet, undecided: RegionSet) -> None:
        """Take a point at which the roots `live` are needed, whatever the phis that are `undecided` are."""
        if undecided != self.undecided:
            self.flush()
            self.undecided = undecided
        if undecided:
            self.run.append((point, live, self.waiting))
        else:
            self.tick(point, live & ~self.waiting)

    def flush(self) -> None:
        """Count the positions of points in a row, once for each outcome of their phis."""
        for chosen in reversed(self.outcomes(self.undecided)) if self.run else ():
            for point, live, waiting in self.run:
                self.tick(point, (live | chosen) & ~waiting)
        self.run = []

    def tick(self, point: int, live: RegionSet) -> None:
        """Count the position in front of those so far, at which the roots `live` are needed."""
        changed, position = int(live) ^ int(self.live), len(self.points)
        while changed:
            root = changed.bit_length() - 1
            changed ^= 1 << root
            if root in self.open:
                self.found.setdefault(root, []).append((position, self.open.pop(root)))
            else:
                self.open[root] = position
        self.live = live
        self.points.append(point)

    def ranges(self) -> LiveRanges:
        """The live ranges, once all points were taken."""
        self.flush()
        self.tick(-1, NO_REGIONS)
        self.points.pop()
        self.points.reverse()
        count, points = len(self.points), self.points
        found: dict[int, LiveRange] = {}
        for root in sorted(self.found):
            live = tuple([(count - a, count - b) for a, b in self.found[root][::-1]])
            first, last = points[live[0][0]], points[live[-1][1] - 1]
            if len(live) > 1:  # paths are laid out one behind the other
                first = min(points[begin] for begin, _ in live)
                last = max(points[end - 1] for _, end in live)
            found[root] = LiveRange(live, first, last)
        return LiveRanges(found, points)

    def begins(self, touched: Mapping[int, RegionSet]) -> list[tuple[int, RegionSet]]:
        """The points that touch roots first, in order, each with these roots."""
        found: list[tuple[int, RegionSet]] = []
        before = NO_REGIONS
        for point in sorted(touched):
            now = touched[point]
            if now & ~before:
                fresh = self.roots(self.points_to.resolve(now)) & ~before
                before |= fresh | now
                if fresh:
                    found.append((point, fresh))
        return found

    # -- phis ------------------------------------------------------------------------------------------------

    def outcomes(self, undecided: RegionSet) -> Sequence[RegionSet]:
        """The sets of roots that undecided phis may be; sets within another set are left out."""
        if not undecided:
            return (NO_REGIONS,)
        phis = members(self.points_to.with_choices(undecided) & self.points_to.phis)
        branches = sorted({self.points_to.regions[number].branch for number in phis})
        if len(branches) > _MOST_BRANCHES:
            return (self.roots(self.points_to.resolve(undecided)),)
        ways = product((0, 1), repeat=len(branches))
        found = dict.fromkeys(self._chosen(undecided, dict(zip(branches, way, strict=True))) for way in ways)
        return [one for one in found if not any(one != other and one & other == one for other in found)]

    def _chosen(self, undecided: RegionSet, sides: Mapping[int, int]) -> RegionSet:
        """The roots that phis are where the Ifs went to `sides`."""
        found, pending = NO_REGIONS, [undecided]
        while pending:
            numbers = pending.pop()
            found |= numbers & ~self.points_to.phis
            for number in members(numbers & self.points_to.phis):
                region = self.points_to.regions[number]
                if region.sources is not None:
                    leaf = region.sources[sides[region.branch]]
                    pending.append(leaf.must | leaf.may)
        return self.roots(found)

"""The analyses of all functions of a program: a fixed point from below, callees first, recursion included.

An effect says what a point may touch; `Content` says what it surely reads before it has written it.  A kernel
that only loads from a buffer needs its content, one that initialises it first does not.  Looking at a shape,
handing on a handle and killing one read nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from operator import or_
from typing import Any, NamedTuple, TypeAlias

from symalloc.analysis.call_expansion import arguments_of, bind_kernel
from symalloc.analysis.conflicts import FeasiblePaths, ReuseConflicts
from symalloc.analysis.effects import Effect, EffectReader, LiveRanges, find_escapes, find_live_ranges
from symalloc.analysis.kernels.coverage import (
    UNKNOWN_ELEMENTS,
    Elements,
    KernelCoverage,
    ParameterCoverage,
    Range,
    kernel_coverage,
)
from symalloc.analysis.kernels.uninitialized import MemoryRange
from symalloc.analysis.points_to import PointsToBuilder
from symalloc.analysis.regions import (
    NO_EFFECTS,
    AbstractValue,
    FunctionSummary,
    Pointees,
    PointsTo,
    Region,
    RegionKind,
    ResultSummary,
    TuplePointees,
    align,
    leaves_of,
    pointees_of,
)
from symalloc.analysis.sets import NO_LEAVES, NO_REGIONS, LeafSet, RegionSet, contains, members, only_member
from symalloc.program import ir
from symalloc.program.control_flow import (
    ControlFlowGraph,
    call_graph,
    callees_first,
    control_flow_graph,
    recursive,
)
from symalloc.program.operands import tensor_type
from symalloc.program.packed_contracts import READS_SOME, SHAPE_ARGUMENTS
from symalloc.size.choice import is_nonnegative
from symalloc.size.condition import Condition, Relation
from symalloc.size.expr import ZERO, Expr, symbol

KernelCall = ir.CallKernel | ir.CallTIR
KernelCoverages: TypeAlias = Callable[[str], KernelCoverage]
"""Return the coverage of the kernel of a name; see `kernel_coverage`."""


class RequiredContents(NamedTuple):
    """The regions whose content one point reads as it was before.

    `may` are those that it may not read after all.  `assumed` are regions that count as written behind the
    point, whatever its effect says: something that is not understood was handed them, or a kernel of which
    that is not known.
    """

    must: RegionSet = NO_REGIONS
    may: RegionSet = NO_REGIONS
    assumed: RegionSet = NO_REGIONS


NOTHING_REQUIRED = RequiredContents()


def surely_meant(points_to: PointsTo, value: AbstractValue) -> RegionSet:
    """The regions of each handle in a value, each on its branch; none where it may as well be another."""
    found = NO_REGIONS
    for must, may, _ in leaves_of(value):
        if must and not may:
            alone = only_member(must) is not None
            if alone or all(points_to.regions[number].path for number in members(must)):
                found |= must
    return found


class Content:
    """The content that the points of a function need memory to hold, and how much of it they fill."""

    def __init__(
        self,
        program: ir.Program,
        points_to: PointsTo,
        summaries: Mapping[str, FunctionSummary],
        coverages: KernelCoverages,
    ) -> None:
        self.program, self.points_to, self.summaries = program, points_to, summaries
        self.coverages, self.tensors = coverages, ~points_to.storages
        extents = (ir.Origin.DIMENSION, ir.Origin.CAST)
        symbols = points_to.cfg.function.symbols.items()
        self.extents = frozenset(name for name, origin in symbols if origin in extents)

    @cached_property
    def needs(self) -> Sequence[RequiredContents]:
        """An entry for each point; nothing that plans memory asks for it."""
        cfg, found = self.points_to.cfg, [NOTHING_REQUIRED] * len(self.points_to.cfg.points)
        for index, instruction in cfg.instructions:
            handler = _NEEDS.get(type(instruction))
            if handler is not None:
                found[index] = handler(self, instruction)
        for branch in cfg.joins:
            found[branch] = RequiredContents(self.surely(cfg.points[branch].uses))
        found[cfg.exit] = RequiredContents(self.surely((cfg.function.body.result,)))
        return found

    def reads(self, point: int, number: int) -> Sequence[MemoryRange]:
        """The parts of a region that a point which needs it reads."""
        call = self.points_to.cfg.points[point].instruction
        whole = MemoryRange(self.points_to.regions[number])
        if isinstance(call, ir.CallOperator) and call.name in READS_SOME:
            return (whole._replace(elements=Elements((), exact=False)),)
        return self._parts(call, number, lambda known: known.reads) or (whole,)

    def writes(self, point: int, number: int) -> Sequence[MemoryRange]:
        """The parts that hold all that a point may write of a region; exact where it surely does."""
        call = self.points_to.cfg.points[point].instruction
        region = self.points_to.regions[number]
        sure = contains(self.points_to.defs.get(point, NO_REGIONS), number) or (
            isinstance(call, ir.CallPacked)
            and contains(
                self.surely([a for i, a in enumerate(call.arguments) if i in call.contract.defines]), number
            )
        )
        parts = self._parts(call, number, lambda known: known.writes)
        return (_part_of(region, exact=sure),) if parts is None else parts

    def loads(self, point: int, number: int) -> Sequence[MemoryRange]:
        """The parts that hold all that a point may read of what a region held before; exact where it surely
        does.
        """
        points_to, call = self.points_to, self.points_to.cfg.points[point].instruction
        region = points_to.regions[number]
        if not isinstance(call, KernelCall) or call.kernel not in self.program.kernels:
            some = isinstance(call, ir.CallOperator) and call.name in READS_SOME
            surely = points_to.with_choices(self.needs[point].must | self.needs[point].may)
            return (_part_of(region, exact=not some and contains(surely, number)),)
        family = points_to.family(RegionSet(1 << number))
        given = map(pointees_of, self.values(call))
        named = [points_to.resolve(must | may) & self.tensors for must, may in given]
        if all(only_member(one) == number for one in named if one & family):
            return self._parts(call, number, lambda found: found.loads) or ()
        return (_part_of(region, exact=False),)

    def _parts(
        self,
        call: ir.Instruction | None,
        number: int,
        chosen: Callable[[ParameterCoverage], Sequence[Elements]],
    ) -> Sequence[MemoryRange] | None:
        """The parts of a region that a call accesses; None where they are not known."""
        if not isinstance(call, KernelCall):
            return None
        region = self.points_to.regions[number]
        found: list[MemoryRange] | None = None
        for position, known, value in self.covered(call):
            if contains(self.points_to.resolve(pointees_of(value)[0]), number):
                boxes = self.at_call(call, position, chosen(known))
                kind = tensor_type(arguments_of(call)[position])
                if kind is not None and kind.nbytes != region.nbytes:  # a reshape, maybe of a part
                    boxes = (one._replace(exact=one.exact and not one.is_whole) for one in boxes)
                parts = (MemoryRange(region, kind if one.ranges else None, one) for one in boxes)
                found = [*(found or ()), *parts]
        return found

    # -- by instruction -----------------------------------------------------------------------------------

    def surely(self, operands: Sequence[ir.Operand | None]) -> RegionSet:
        """The tensors that operands surely point to, each on its branch."""
        values = TuplePointees(tuple(map(self.points_to.value_of, operands)))
        return surely_meant(self.points_to, values) & self.tensors

    def call_kernel(self, call: KernelCall) -> RequiredContents:
        must = may = whole = NO_REGIONS
        for position, known, value in self.covered(call):
            if known.surely:
                must |= surely_meant(self.points_to, value)
            elif known.needed:
                may |= surely_meant(self.points_to, value)
            parts = self.at_call(call, position, known.writes) if known.writes and not known.fills else ()
            if known.fills or any(one.is_whole for one in parts):
                whole |= pointees_of(value)[0]
        return RequiredContents(must & self.tensors, may & self.tensors, whole & self.tensors)

    def call_packed(self, call: ir.CallPacked) -> RequiredContents:
        known = call.contract
        if known.writes is not None:
            read = [a for index, a in enumerate(call.arguments) if known.reads_argument(index)]
            return RequiredContents(self.surely(read))
        return RequiredContents(may=self.surely(call.arguments)) if call.pure else NOTHING_REQUIRED

    def call_operator(self, call: ir.CallOperator) -> RequiredContents:
        looked_at = SHAPE_ARGUMENTS.get(call.name, frozenset())
        return RequiredContents(self.surely([a for i, a in enumerate(call.arguments) if i not in looked_at]))

    def call_function(self, call: ir.CallFunction) -> RequiredContents:
        summary, callee = self.summaries.get(call.name), self.program.functions.get(call.name)
        if summary is None or callee is None or len(callee.params) != len(call.arguments):
            return self.not_understood(call.arguments)
        found = NO_REGIONS
        for number, (_, leaf) in enumerate(self.points_to.argument_leaves(call.arguments, callee)):
            if contains(summary.needs, number):
                found |= surely_meant(self.points_to, leaf)
        return RequiredContents(found & self.tensors)

    def not_understood(self, operands: Sequence[ir.Operand]) -> RequiredContents:
        must, may = self.points_to.pointees(operands)
        return RequiredContents(assumed=self.points_to.resolve(must | may))

    # -- calls of kernels ---------------------------------------------------------------------------------

    def covered(self, call: KernelCall) -> Sequence[tuple[int, ParameterCoverage, AbstractValue]]:
        """The parameters of a kernel with their coverage, each with what it is given."""
        values, known = self.values(call), self.coverages(call.kernel)
        return [(position, known[position], values[position]) for position in known if position < len(values)]

    def values(self, call: KernelCall) -> Sequence[AbstractValue]:
        """The values of the arguments, as the kernel sees them."""
        value_of = self.points_to.value_of
        if isinstance(call, ir.CallKernel):
            return [*map(value_of, call.arguments)]
        made = list(leaves_of(self.points_to.values[call.var]))
        donors = (*call.inplace, *(None for _ in call.outputs))
        fresh = [leaf for leaf, donor in zip(made, donors, strict=False) if donor is None]
        return [*map(value_of, call.inputs), *fresh]

    def at_call(self, call: KernelCall, position: int, boxes: Sequence[Elements]) -> Iterator[Elements]:
        """Boxes of a parameter in symbols of the caller; what is plainly all of the argument stands so."""
        arguments = arguments_of(call)
        kind = tensor_type(arguments[position])
        shape = () if kind is None or kind.shape is None else kind.shape
        for box in sorted(boxes, key=lambda one: not one.is_whole):
            if box.is_whole and box.points is None:
                yield box if box is UNKNOWN_ELEMENTS else box._replace(ranges=(None,) * len(shape))
                continue
            bound = bind_kernel(self.program.kernels[call.kernel], arguments)
            if not box.symbols <= bound.keys() or len(box.ranges) != len(shape):
                yield Elements((None,) * len(shape), exact=False)
                continue
            known = box.substitute(bound)
            guards = tuple(c for c in known.guards if not self.is_plain(c))
            runs = tuple(c for c in known.runs if not self.is_plain(c))
            pairs = zip(known.ranges, shape, strict=True)
            ranges = tuple(None if found == Range(ZERO, extent) else found for found, extent in pairs)
            yield known._replace(ranges=ranges, guards=guards, runs=runs)

    def is_plain(self, condition: Condition) -> bool:
        """True for a condition that plainly holds wherever no extent is 0."""
        if condition.as_bool is not None:
            return condition.as_bool
        if not isinstance(condition, Relation) or condition.operator != "<=":
            return False
        values = {name: symbol(name) + 1 for name in condition.symbols & self.extents}
        return is_nonnegative(-condition.expr.substitute(values), condition.symbols - self.extents)


def _part_of(region: Region, *, exact: bool) -> MemoryRange:
    """All of a region, or, if not exact, what is not known of it."""
    return MemoryRange(region, elements=Elements((), exact=exact))


_NEEDS: dict[type, Callable[[Content, Any], RequiredContents]] = {
    ir.Assert: lambda content, i: RequiredContents(content.surely(i.reads)) if i.reads else NOTHING_REQUIRED,
    ir.CallFunction: Content.call_function,
    ir.CallKernel: Content.call_kernel,
    ir.CallOperator: Content.call_operator,
    ir.CallPacked: Content.call_packed,
    ir.CallTIR: Content.call_kernel,
    ir.NotUnderstood: lambda content, i: content.not_understood(i.reads),
}


class Allocation(NamedTuple):
    """A tensor that an AllocFresh makes: its region, its size, and the reason why it escapes, if it does."""

    number: int
    nbytes: Expr | None
    escape: str | None


@dataclass(frozen=True, kw_only=True)
class FunctionAnalysis:
    """The analyses of one function of `program`, each made when it is first asked for.

    `summaries` and `coverages` are those of all functions and kernels; summaries may still change as long as
    functions are analysed that others call.  `recursive`: the function can be called while it is under way;
    `called`: another function calls it.  Calls that bind a variable of `unsure` do what they do on some paths
    only.
    """

    cfg: ControlFlowGraph
    program: ir.Program
    summaries: Mapping[str, FunctionSummary]
    coverages: KernelCoverages
    unsure: frozenset[ir.Var] = frozenset()
    recursive: bool = False
    called: bool = False

    @property
    def summary(self) -> FunctionSummary:
        """All that callers need to know; nothing of a function that nobody calls."""
        return self.summaries[self.cfg.function.name]

    @cached_property
    def points_to(self) -> PointsTo:
        """The regions that each variable points to."""
        return PointsToBuilder(self.program, self.cfg, self.summaries, unsure=self.unsure).build()

    @cached_property
    def effects(self) -> Sequence[Effect]:
        """The effect of each point on regions."""
        return EffectReader(self.program, self.points_to, self.summaries, self.unsure).read()

    @cached_property
    def content(self) -> Content:
        """The content that each point needs regions to hold already."""
        return Content(self.program, self.points_to, self.summaries, self.coverages)

    @cached_property
    def conflicts(self) -> ReuseConflicts:
        """The paths on which memory is written while it is needed, every If independent of the others.

        Plans rest on these: they never rely on what a tensor holds.
        """
        return ReuseConflicts(self.points_to, self.effects, FeasiblePaths(self.cfg))

    @cached_property
    def escapes(self) -> Mapping[int, str]:
        """The reason for each root that may be reached from outside when the function is over."""
        return find_escapes(self.points_to, self.effects)

    @cached_property
    def allocations(self) -> Mapping[ir.Var, Allocation]:
        """The tensors that AllocFresh makes, by variable, in order."""
        regions, escapes = self.points_to.regions, self.escapes
        made = [r for r in regions if type(r.instruction) is ir.AllocFresh and r.parent is None]
        return {r.var: Allocation(r.number, r.nbytes, escapes.get(r.number)) for r in made}

    def live_ranges(self, numbers: Iterable[int]) -> LiveRanges:
        """The live ranges of roots by number; see `find_live_ranges`."""
        return find_live_ranges(self.points_to, self.effects, numbers)


def analyse(
    program: ir.Program, coverage: Callable[[ir.Kernel], KernelCoverage] = kernel_coverage
) -> dict[str, FunctionAnalysis]:
    """The analyses of all functions of `program`, callees before callers where there is no recursion.

    Functions that nothing calls have no summary.  `coverage` tells what kernels read and write.
    """
    graphs = {name: control_flow_graph(function) for name, function in program.functions.items()}
    callees = call_graph(graphs)
    order = callees_first(callees)
    called = frozenset().union(*callees.values())
    by_others = {callee for name in order for callee in callees[name] if callee != name}
    under_way = recursive(callees)
    summaries = dict.fromkeys(order, NO_EFFECTS)
    kernels = program.kernels
    coverages = cache(lambda name: coverage(kernels[name]) if name in kernels else {})
    found: dict[str, FunctionAnalysis] = {}
    pending = dict.fromkeys(order)
    while pending:
        name = next(iter(pending))
        del pending[name]
        analysis = found[name] = FunctionAnalysis(
            cfg=graphs[name],
            program=program,
            summaries=summaries,
            coverages=coverages,
            recursive=name in under_way,
            called=name in by_others,
        )
        if name not in called:
            continue
        summary = _settled(_summary(analysis), summaries[name])
        if summary != summaries[name]:
            summaries[name] = summary
            pending.update(dict.fromkeys(n for n in order if name in callees[n]))
    return {name: found[name] for name in order}


def analyse_variant(
    program: ir.Program,
    function: ir.Function,
    analyses: Mapping[str, FunctionAnalysis],
    unsure: frozenset[ir.Var] = frozenset(),
) -> FunctionAnalysis:
    """The analysis of `function`, a form of a function of `program`.

    `analyses` are those of all functions of `program`; what callees do is taken from there.  Calls that bind
    a variable of `unsure` do it on some paths only.
    """
    known, cfg = analyses[function.name], control_flow_graph(function)
    return replace(known, cfg=cfg, program=program, unsure=unsure, recursive=False)


def _summary(analysis: FunctionAnalysis) -> FunctionSummary:
    """The summary of an analysed function, for its callers."""
    points_to, effects, content = analysis.points_to, analysis.effects, analysis.content
    roots = (only_member(leaf.must) for leaf in points_to.parameters)
    leaf_of = {root: leaf for leaf, root in enumerate(roots) if root is not None}
    consumed = written = early = NO_REGIONS
    done = Effect(*(reduce(or_, column, NO_REGIONS) for column in zip(*effects[:-1], strict=True)))
    for effect, need in zip(effects, content.needs, strict=True):
        early |= points_to.resolve(need.must) & ~written
        made = effect.written | need.assumed
        if made & ~written:
            written |= points_to.family(made)
    for one in points_to.consumed:
        consumed |= one.leaf.must | one.leaf.may
    must, may, _ = _leaves(points_to, leaf_of, Pointees(done.writes, done.may_writes))
    results = align(points_to.result, points_to.cfg.function.result_type)
    return FunctionSummary(
        results=tuple(_result(points_to, leaf_of, leaf, written) for leaf in results),
        reads=_leaves(points_to, leaf_of, Pointees(done.reads | done.may_reads))[0],
        writes=must,
        may_writes=may & ~must,
        captures=_leaves(points_to, leaf_of, Pointees(done.captures))[0],
        consumes=_leaves(points_to, leaf_of, Pointees(consumed))[0],
        ignores_offset=_parameters_in(points_to, done.ignores_offset),
        needs=_parameters_in(points_to, points_to.family(early)),
    )


def _parameters_in(points_to: PointsTo, regions: RegionSet) -> LeafSet:
    """The parameter leaves that are, as a whole, among `regions`."""
    found, regions = NO_LEAVES, points_to.resolve(regions)
    for number, leaf in enumerate(points_to.parameters):
        found |= LeafSet(1 << number) if leaf.must & regions else NO_LEAVES
    return found


def _result(
    points_to: PointsTo, leaf_of: Mapping[int, int], leaf: Pointees, written: RegionSet
) -> ResultSummary:
    must, may, fresh = _leaves(points_to, leaf_of, leaf)
    found = [points_to.regions[target.region] for target in points_to.targets(leaf.must, leaf.may)]
    nbytes = found[0].nbytes if len(found) == 1 and found[0].kind is RegionKind.STORAGE else None
    own = (RegionKind.FRESH, RegionKind.TENSOR, RegionKind.VIEW)
    unfilled = all(r.kind in own and not r.external and not contains(written, r.number) for r in found)
    offset, *others = dict.fromkeys(points_to.offsets_of(leaf)) or (None,)
    return ResultSummary(
        must=must,
        may=may & ~must,
        fresh=fresh,
        constant=bool(points_to.resolve(leaf.must | leaf.may) & points_to.constants),
        storage=None if nbytes is None or nbytes.as_constant is None else nbytes,
        filled=not (found and unfilled),
        offset=offset if not others else None,
    )


def _settled(summary: FunctionSummary, before: FunctionSummary) -> FunctionSummary:
    """The summary found behind `before`, in recursion: an offset that differs from the last is not known."""
    if not before.results or before.results == summary.results:
        return summary
    pairs = zip(summary.results, before.results, strict=True)
    results = (now if now.offset == last.offset else replace(now, offset=None) for now, last in pairs)
    return replace(summary, results=tuple(results))


def _leaves(points_to: PointsTo, leaf_of: Mapping[int, int], leaf: Pointees) -> tuple[LeafSet, LeafSet, bool]:
    """The parameter leaves behind a handle: (must, may); and whether other memory may be behind it.

    Constants count as neither.
    """
    must = may = NO_LEAVES
    fresh = False
    for target in points_to.targets(leaf.must, leaf.may):
        if contains(points_to.constants, target.region):
            continue
        number = leaf_of.get(points_to.regions[target.region].root)
        if number is None:
            fresh = True
        elif target.certain:
            must |= LeafSet(1 << number)
        else:
            may |= LeafSet(1 << number)
    return must, may, fresh

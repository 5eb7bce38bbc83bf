"""The analyses of all functions of a program: a fixed point from below, callees first, recursion included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from operator import or_
from typing import NamedTuple

from symalloc.analysis.conflicts import ReuseConflicts
from symalloc.analysis.content import Content, KernelCoverages
from symalloc.analysis.effects import Effect, find_effects, find_escapes
from symalloc.analysis.feasibility import FeasiblePaths
from symalloc.analysis.kernels.coverage import KernelCoverage, kernel_coverage
from symalloc.analysis.liveness import LiveRanges, find_live_ranges
from symalloc.analysis.points_to import find_points_to
from symalloc.analysis.regions import (
    NO_EFFECTS,
    FunctionSummary,
    Pointees,
    PointsTo,
    RegionKind,
    ResultSummary,
    align,
)
from symalloc.analysis.sets import NO_LEAVES, NO_REGIONS, LeafSet, RegionSet, contains, only_member
from symalloc.program.control_flow import (
    ControlFlowGraph,
    call_graph,
    callees_first,
    control_flow_graph,
    recursive,
)
from symalloc.program.ir import AllocFresh, Function, Kernel, Program, Var
from symalloc.size.expr import Expr


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
    program: Program
    summaries: Mapping[str, FunctionSummary]
    coverages: KernelCoverages
    unsure: frozenset[Var] = frozenset()
    recursive: bool = False
    called: bool = False

    @property
    def summary(self) -> FunctionSummary:
        """All that callers need to know; nothing of a function that nobody calls."""
        return self.summaries[self.cfg.function.name]

    @cached_property
    def points_to(self) -> PointsTo:
        """The regions that each variable points to."""
        return find_points_to(self.program, self.cfg, self.summaries, unsure=self.unsure)

    @cached_property
    def effects(self) -> Sequence[Effect]:
        """The effect of each point on regions."""
        return find_effects(self.program, self.points_to, self.summaries, self.unsure)

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
    def allocations(self) -> Mapping[Var, Allocation]:
        """The tensors that AllocFresh makes, by variable, in order."""
        regions, escapes = self.points_to.regions, self.escapes
        made = [r for r in regions if type(r.instruction) is AllocFresh and r.parent is None]
        return {r.var: Allocation(r.number, r.nbytes, escapes.get(r.number)) for r in made}

    def live_ranges(self, numbers: Iterable[int]) -> LiveRanges:
        """The live ranges of roots by number; see `find_live_ranges`."""
        return find_live_ranges(self.points_to, self.effects, numbers)


def analyse(
    program: Program, coverage: Callable[[Kernel], KernelCoverage] = kernel_coverage
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
    program: Program,
    function: Function,
    analyses: Mapping[str, FunctionAnalysis],
    unsure: frozenset[Var] = frozenset(),
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

"""The analyses of all functions of a program: a fixed point from below, callees first, recursion included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from symalloc.analysis.call_graph import call_graph, callees_first, recursive
from symalloc.analysis.conflicts import ReuseConflicts
from symalloc.analysis.content import Content, needed_parameters, related, unwritten_leaf
from symalloc.analysis.dataflow import States
from symalloc.analysis.effects import Effect, find_effects, find_escapes
from symalloc.analysis.feasibility import FeasiblePaths
from symalloc.analysis.kernel_calls import KernelCoverages
from symalloc.analysis.live_ranges import LiveRanges, find_live_ranges
from symalloc.analysis.liveness import LiveRegions, WrittenRegions, live_regions, written_regions
from symalloc.analysis.points_to import PointsTo
from symalloc.analysis.points_to_builder import find_points_to
from symalloc.analysis.regions import Pointees, RegionKind
from symalloc.analysis.sets import NO_LEAVES, NO_REGIONS, LeafSet, RegionSet, contains, only_member
from symalloc.analysis.summary import NO_EFFECTS, FunctionSummary, ResultSummary, align
from symalloc.program.control_flow import ControlFlowGraph, control_flow_graph
from symalloc.program.ir import Function, Program, Var
from symalloc.size.cached_property import cached_property
from symalloc.size.expr import Expr


@dataclass(frozen=True, kw_only=True)
class FunctionAnalysis:
    """The analyses of one function; those that few ask for are made when they are first asked for.

    `recursive`: the function can be called while it is under way; `called`: another function calls it.
    """

    cfg: ControlFlowGraph
    points_to: PointsTo
    effects: Sequence[Effect]
    content: Content
    summary: FunctionSummary = NO_EFFECTS
    recursive: bool = False
    called: bool = False

    @cached_property
    def written(self) -> States[WrittenRegions]:
        """The regions written before each point, on some path."""
        return written_regions(self.points_to, self.effects)

    @cached_property
    def live(self) -> States[LiveRegions]:
        """The regions live in front of and behind each point."""
        return live_regions(self.points_to, self.effects)

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

    def live_ranges(self, numbers: Iterable[int], *, once: bool = False) -> LiveRanges:
        """The live ranges of roots by number; see `find_live_ranges`."""
        return find_live_ranges(self.points_to, self.effects, self.live.after, numbers, once=once)


def analyse(program: Program) -> dict[str, FunctionAnalysis]:
    """The analyses of all functions of `program`, callees before callers where there is no recursion.

    Functions that nothing calls have no summary.
    """
    graphs = {name: control_flow_graph(function) for name, function in program.functions.items()}
    callees = call_graph(graphs)
    parameters = {name: tuple(p.type for p in f.params) for name, f in program.functions.items()}
    order = callees_first(callees)
    called = frozenset().union(*callees.values())
    by_others = {callee for name in order for callee in callees[name] if callee != name}
    under_way = recursive(callees)
    summaries = dict.fromkeys(order, NO_EFFECTS)
    found: dict[str, FunctionAnalysis] = {}
    coverages = KernelCoverages(program)
    pending = dict.fromkeys(order)
    while pending:
        name = next(iter(pending))
        del pending[name]
        points_to = find_points_to(graphs[name], summaries, parameters)
        effects = find_effects(program, points_to, summaries)
        content = Content(program, points_to, summaries, coverages)
        summary = summaries[name]
        if name in called:
            summary = _settled(_summary(points_to, effects, content), summary)
        found[name] = FunctionAnalysis(
            cfg=graphs[name],
            points_to=points_to,
            effects=effects,
            content=content,
            summary=summary,
            recursive=name in under_way,
            called=name in by_others,
        )
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
    summaries = {name: analysis.summary for name, analysis in analyses.items()}
    parameters = {name: tuple(p.type for p in f.params) for name, f in program.functions.items()}
    points_to = find_points_to(control_flow_graph(function), summaries, parameters, unsure=unsure)
    effects = find_effects(program, points_to, summaries, unsure)
    content = Content(program, points_to, summaries, analyses[function.name].content.coverages)
    called = analyses[function.name].called
    return FunctionAnalysis(
        cfg=points_to.cfg, points_to=points_to, effects=effects, content=content, called=called
    )


def _summary(points_to: PointsTo, effects: Sequence[Effect], content: Content) -> FunctionSummary:
    """The summary of an analysed function, for its callers."""
    roots = (only_member(leaf.must) for leaf in points_to.parameters)
    leaf_of = {root: leaf for leaf, root in enumerate(roots) if root is not None}
    reads = writes = may_writes = captures = ignores = consumed = written = NO_REGIONS
    for effect in effects[:-1]:  # the last point returns
        reads |= effect.reads | effect.may_reads
    for effect, need in zip(effects, content.needs, strict=True):
        written |= effect.written | need.given
        writes |= effect.writes
        may_writes |= effect.may_writes
        captures |= effect.captures
        ignores |= effect.ignores_offset
    for one in points_to.consumed:
        consumed |= one.leaf.must | one.leaf.may
    must, may, _ = _leaves(points_to, leaf_of, Pointees(writes, may_writes))
    results = align(points_to.result, points_to.cfg.function.result_type)
    written = related(points_to, written)
    return FunctionSummary(
        results=tuple(_result(points_to, leaf_of, leaf, written) for leaf in results),
        reads=_leaves(points_to, leaf_of, Pointees(reads))[0],
        writes=must,
        may_writes=may & ~must,
        captures=_leaves(points_to, leaf_of, Pointees(captures))[0],
        consumes=_leaves(points_to, leaf_of, Pointees(consumed))[0],
        ignores_offset=_parameters_in(points_to, ignores),
        needs=needed_parameters(points_to, effects, content.needs),
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
    return ResultSummary(
        must=must,
        may=may & ~must,
        fresh=fresh,
        constant=bool(points_to.resolve(leaf.must | leaf.may) & points_to.constants),
        storage=_storage(points_to, leaf),
        filled=not unwritten_leaf(points_to, leaf, written),
        offset=_only(set(points_to.offsets_of(leaf))),
    )


def _only(offsets: set[Expr]) -> Expr | None:
    return next(iter(offsets)) if len(offsets) == 1 else None


def _settled(summary: FunctionSummary, before: FunctionSummary) -> FunctionSummary:
    """The summary found behind `before`, in recursion: an offset that differs from the last is not known."""
    if not before.results or before.results == summary.results:
        return summary
    pairs = zip(summary.results, before.results, strict=True)
    results = (now if now.offset == last.offset else replace(now, offset=None) for now, last in pairs)
    return replace(summary, results=tuple(results))


def _storage(points_to: PointsTo, leaf: Pointees) -> Expr | None:
    """The size of the storage that a leaf is, where it is one and its size a constant."""
    found = [points_to.regions[target.region] for target in points_to.targets(leaf.must, leaf.may)]
    if len(found) != 1 or found[0].kind is not RegionKind.STORAGE or found[0].nbytes is None:
        return None
    return found[0].nbytes if found[0].nbytes.as_constant is not None else None


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

"""Summaries of all functions of a program: a fixed point from below, callees first, recursion included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from symalloc.analysis.call_graph import call_graph, callees_first, recursive
from symalloc.analysis.effects import Effect, effects
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.points_to import find_points_to
from symalloc.analysis.regions import Pointees, RegionKind
from symalloc.analysis.summary import NOTHING, FunctionSummary, Returned, align
from symalloc.program.control_flow import ControlFlowGraph, control_flow_graph
from symalloc.program.model import Program
from symalloc.program.types import Type
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAnalysis:
    """What is known of one function: its steps, where its variables point, what each step does to memory.

    `recursive`: it can be called while it is under way.
    """

    cfg: ControlFlowGraph
    points_to: PointsTo
    effects: Sequence[Effect]
    recursive: bool = False


def analyse(program: Program) -> dict[str, FunctionAnalysis]:
    """The analyses of all functions of `program`, callees before callers where there is no recursion."""
    flows = {name: control_flow_graph(function) for name, function in program.functions.items()}
    callees = call_graph(flows)
    parameters = {name: tuple(p.type for p in f.params) for name, f in program.functions.items()}
    order = callees_first(callees)
    summaries = dict.fromkeys(order, NOTHING)
    found: dict[str, FunctionAnalysis] = {}
    pending = dict.fromkeys(order)
    while pending:
        name = next(iter(pending))
        del pending[name]
        found[name] = _analysis(program, flows[name], summaries, parameters)
        summary = _summary(found[name])
        if summary != summaries[name]:
            summaries[name] = summary
            pending.update(dict.fromkeys(n for n in order if name in callees[n]))
    under_way = recursive(callees)
    return {name: replace(found[name], recursive=name in under_way) for name in order}


def _analysis(
    program: Program,
    cfg: ControlFlowGraph,
    summaries: Mapping[str, FunctionSummary],
    parameters: Mapping[str, tuple[Type, ...]],
) -> FunctionAnalysis:
    points_to = find_points_to(cfg, summaries, parameters)
    return FunctionAnalysis(cfg=cfg, points_to=points_to, effects=effects(program, points_to, summaries))


def _summary(analysis: FunctionAnalysis) -> FunctionSummary:
    """What callers must know of an analysed function."""
    points_to = analysis.points_to
    leaf_of = {
        region: leaf
        for leaf, cell in enumerate(points_to.parameters)
        for region in (cell.must.bit_length() - 1,)
        if cell.must
    }
    results = align(points_to.result, points_to.cfg.function.result_type)
    writes = may_writes = keeps = 0
    for effect in analysis.effects:
        writes |= effect.writes
        may_writes |= effect.may_writes
        keeps |= effect.captures
    must, may = _leaves(points_to, leaf_of, Pointees(writes, may_writes))[:2]
    return FunctionSummary(
        results=tuple(_returned(points_to, leaf_of, cell) for cell in results),
        writes=must,
        may_writes=may & ~must,
        captures=_leaves(points_to, leaf_of, Pointees(keeps, 0))[0],
    )


def _returned(points_to: PointsTo, leaf_of: Mapping[int, int], cell: Pointees) -> Returned:
    must, may, fresh = _leaves(points_to, leaf_of, cell)
    return Returned(must=must, may=may & ~must, fresh=fresh, storage=_storage(points_to, cell))


def _storage(points_to: PointsTo, cell: Pointees) -> Expr | None:
    """The size of the storage that a cell is, where it is one and its size a constant."""
    found = [points_to.regions[target.region] for target in points_to.targets(cell.must, cell.may)]
    if len(found) != 1 or found[0].kind is not RegionKind.STORAGE or found[0].nbytes is None:
        return None
    return found[0].nbytes if found[0].nbytes.as_constant is not None else None


def _leaves(points_to: PointsTo, leaf_of: Mapping[int, int], cell: Pointees) -> tuple[int, int, bool]:
    """The parameter leaves behind a cell: (must, may); and whether other memory may be behind it."""
    must = may = 0
    fresh = False
    for target in points_to.targets(cell.must, cell.may):
        leaf = leaf_of.get(points_to.regions[target.region].root)
        if leaf is None:
            fresh = True
        elif target.certain:
            must |= 1 << leaf
        else:
            may |= 1 << leaf
    return must, may, fresh

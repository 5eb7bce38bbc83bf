"""Summaries of all functions of a program: a fixed point from below, callees first, recursion included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from symalloc.analysis.call_graph import call_graph, callees_first, recursive
from symalloc.analysis.effects import Effect, effects
from symalloc.analysis.pointers import PointsTo
from symalloc.analysis.points_to import points_to
from symalloc.analysis.regions import Cell, Kind
from symalloc.analysis.summary import NOTHING, FunctionSummary, Returned, align
from symalloc.program.flow import Flow, flatten
from symalloc.program.model import Program
from symalloc.program.types import Type
from symalloc.size.expr import Expr

__all__ = ["Analysis", "analyse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What is known of one function: its steps, where its variables point, what each step does to memory.

    `recursive`: it can be called while it is under way.
    """

    flow: Flow
    points: PointsTo
    effects: Sequence[Effect]
    recursive: bool = False


def analyse(program: Program) -> dict[str, Analysis]:
    """The analyses of all functions of `program`, callees before callers where there is no recursion."""
    flows = {name: flatten(function) for name, function in program.functions.items()}
    callees = call_graph(flows)
    parameters = {name: tuple(p.type for p in f.params) for name, f in program.functions.items()}
    order = callees_first(callees)
    summaries = dict.fromkeys(order, NOTHING)
    found: dict[str, Analysis] = {}
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
    flow: Flow,
    summaries: Mapping[str, FunctionSummary],
    parameters: Mapping[str, tuple[Type, ...]],
) -> Analysis:
    points = points_to(flow, summaries, parameters)
    return Analysis(flow=flow, points=points, effects=effects(program, points, summaries))


def _summary(analysis: Analysis) -> FunctionSummary:
    """What callers must know of an analysed function."""
    points = analysis.points
    leaf_of = {
        region: leaf
        for leaf, cell in enumerate(points.given)
        for region in (cell.sure.bit_length() - 1,)
        if cell.sure
    }
    results = align(points.result, points.flow.function.result_type)
    writes = maybe_writes = keeps = 0
    for effect in analysis.effects:
        writes |= effect.writes
        maybe_writes |= effect.maybe_writes
        keeps |= effect.keeps
    sure, maybe = _leaves(points, leaf_of, Cell(writes, maybe_writes))[:2]
    return FunctionSummary(
        results=tuple(_returned(points, leaf_of, cell) for cell in results),
        writes=sure,
        maybe_writes=maybe & ~sure,
        keeps=_leaves(points, leaf_of, Cell(keeps, 0))[0],
    )


def _returned(points: PointsTo, leaf_of: Mapping[int, int], cell: Cell) -> Returned:
    sure, maybe, fresh = _leaves(points, leaf_of, cell)
    return Returned(sure=sure, maybe=maybe & ~sure, fresh=fresh, storage=_storage(points, cell))


def _storage(points: PointsTo, cell: Cell) -> Expr | None:
    """The size of the storage that a cell is, where it is one and its size a constant."""
    found = [points.regions[target.region] for target in points.targets(cell.sure, cell.maybe)]
    if len(found) != 1 or found[0].kind is not Kind.STORAGE or found[0].nbytes is None:
        return None
    return found[0].nbytes if found[0].nbytes.as_constant is not None else None


def _leaves(points: PointsTo, leaf_of: Mapping[int, int], cell: Cell) -> tuple[int, int, bool]:
    """The parameter leaves behind a cell: (sure, maybe); and whether other memory may be behind it."""
    sure = maybe = 0
    fresh = False
    for target in points.targets(cell.sure, cell.maybe):
        leaf = leaf_of.get(points.regions[target.region].root)
        if leaf is None:
            fresh = True
        elif target.certain:
            sure |= 1 << leaf
        else:
            maybe |= 1 << leaf
    return sure, maybe, fresh

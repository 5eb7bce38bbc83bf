"""The lifetimes of allocations on each path through a function that branches.

What is returned on one path only is memory of the call's own on the others, beside which an arena may be
held; and what a path needs at most says how much may be taken on any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse_variant
from symalloc.analysis.paths import enumerate_paths
from symalloc.planner.buffers.arena_assignment import PathLifetimes, UnplannedRange
from symalloc.planner.buffers.sizing import padded_size
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import AllocFresh, CallFunction, Function, Program, Var

_MOST_PATHS = 16


def path_lifetimes(
    program: Program, analyses: Mapping[str, FunctionAnalysis], name: str, variables: Sequence[Var | None]
) -> list[PathLifetimes]:
    """Return the lifetimes of candidates, given by variable, on each path through the function `name`.

    The list is empty where the function does not branch, or there are too many paths.
    """
    cfg = analyses[name].cfg
    if not cfg.joins:
        return []
    paths = enumerate_paths(cfg.function, most=_MOST_PATHS) or ()
    return [_on_path(program, path, cfg, variables, analyses) for path in paths]


def _on_path(
    program: Program,
    path: Function,
    cfg: ControlFlowGraph,
    variables: Sequence[Var | None],
    analyses: Mapping[str, FunctionAnalysis],
) -> PathLifetimes:
    """Return the lifetimes in the function as it runs on one path, in points of the whole `cfg`."""
    analysis = analyse_variant(program, path, analyses)
    regions = analysis.points_to.regions
    numbers: dict[Var, int] = {}
    for point, made in analysis.cfg.instructions:
        if isinstance(made, AllocFresh):
            numbers[made.var] = analysis.points_to.allocated(made.var).number
        elif isinstance(made, CallFunction):
            callee = analyses.get(made.name)
            if made.var in variables or (callee is not None and callee.recursive):
                numbers[made.var] = len(regions) + point
    times = analysis.live_ranges(numbers.values())
    lives = {var: times.of[number].live for var, number in numbers.items() if number in times.of}
    points = [
        len(cfg.points) - 1 if point.instruction is None else cfg.starts[point.instruction.var]
        for point in analysis.cfg.points
    ]
    return PathLifetimes(
        lives=[() if var is None else lives.get(var, ()) for var in variables],
        steps=[points[index] for index in times.points],
        unplanned=[
            UnplannedRange(padded_size(regions[n].nbytes) if n < len(regions) else None, lives[var])
            for var, n in numbers.items()
            if var in lives and var not in variables and n not in analysis.escapes
        ],
    )


def outermost_ifs(cfg: ControlFlowGraph) -> dict[int, int]:
    """Return for each point within an If the BRANCH of the outermost one."""
    found: dict[int, int] = {}
    for number, point in enumerate(cfg.points):
        if point.branch >= 0:
            found[number] = found.get(point.branch, point.branch)
    return found

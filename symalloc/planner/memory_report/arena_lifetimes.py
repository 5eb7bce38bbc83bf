"""The arenas of a plan that are reserved together: late ones need not be there beside early ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.memory_plan import Arena, Plan
from symalloc.program.model import Var
from symalloc.size.expr import ZERO, Expr


def reserved_sums(plan: Plan, analysis: FunctionAnalysis) -> tuple[Expr, ...]:
    """Sums of bytes of arenas that are reserved together: the largest is what a call needs for its arenas.

    An arena is there from its reservation to the last step that touches what lies in it; an If counts with
    both sides.
    """
    arenas = [arena for arena in plan.arenas if arena.placements]
    if all(arena.defined_by is None for arena in arenas):
        return (_sum(arenas),)
    steps = analysis.cfg.ends
    last = _last_steps(analysis)
    spans = [(_begin(arena, steps), _end(arena, steps, last)) for arena in arenas]
    sums = (
        _sum(arena for arena, (begin, end) in zip(arenas, spans, strict=True) if begin <= point <= end)
        for point, _ in spans
    )
    return undominated(sums)


def undominated(sums: Iterable[Expr]) -> tuple[Expr, ...]:
    """Those of `sums` that no other reaches term by term; symbols are taken as >= 0."""
    kept: list[Expr] = []
    for candidate in dict.fromkeys(sums):
        if not any(_reaches(other, candidate) for other in kept):
            kept = [other for other in kept if not _reaches(candidate, other)] + [candidate]
    return tuple(kept)


def _reaches(high: Expr, low: Expr) -> bool:
    difference = high - low
    return difference.is_polynomial and all(c >= 0 for c in difference.terms.values())


def _sum(arenas: Iterable[Arena]) -> Expr:
    return sum((arena.size for arena in arenas), start=ZERO)


def _begin(arena: Arena, steps: Mapping[Var, int]) -> int:
    return -1 if arena.defined_by is None else steps[arena.defined_by]


def _end(arena: Arena, steps: Mapping[Var, int], last: Mapping[Var, int]) -> int:
    """The last step that touches what lies in `arena`; a callee's memory is touched by the call."""
    owners = (p.buffer.var for p in arena.placements)
    return max((last.get(var, steps.get(var, -1)) for var in owners if var is not None), default=-1)


def _last_steps(analysis: FunctionAnalysis) -> dict[Var, int]:
    """The last step that touches each allocation."""
    found: dict[Var, int] = {}
    for index, effect in enumerate(analysis.effects):
        for root in analysis.points_to.roots(effect.touched):
            variable = analysis.points_to.regions[root].var
            if variable is not None:
                found[variable] = index
    return found

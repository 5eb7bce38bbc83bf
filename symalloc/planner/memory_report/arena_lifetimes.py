"""The arenas of a plan that are reserved together: late ones need not be there beside early ones."""

from __future__ import annotations

from collections.abc import Iterable

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.memory_plan import Plan
from symalloc.program.ir import Var
from symalloc.size.expr import ZERO, Expr


def reserved_sums(plan: Plan, analysis: FunctionAnalysis) -> tuple[Expr, ...]:
    """Return sums of bytes of arenas that are reserved together: the largest is what a call needs for them.

    An arena is there from its reservation to the last point that touches what lies in it (the memory of a
    callee is touched by the call); an If counts with both sides.
    """
    arenas = [arena for arena in plan.arenas if arena.placements]
    ends = analysis.cfg.ends
    last = {**ends, **_last_touches(analysis)}
    spans = [
        (
            -1 if arena.defined_by is None else ends[arena.defined_by],
            max((last.get(p.buffer.var, -1) for p in arena.placements if p.buffer.var), default=-1),
        )
        for arena in arenas
    ]
    begins = dict.fromkeys(begin for begin, _ in spans)
    return undominated(
        sum((a.size for a, (b, e) in zip(arenas, spans, strict=True) if b <= point <= e), start=ZERO)
        for point in begins
    )


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


def _last_touches(analysis: FunctionAnalysis) -> dict[Var, int]:
    """Return the last point that touches each allocation."""
    regions = analysis.points_to.regions
    found: dict[Var, int] = {}
    for point, effect in enumerate(analysis.effects):
        for root in analysis.points_to.roots(effect.touched):
            variable = regions[root].var
            if variable is not None:
                found[variable] = point
    return found

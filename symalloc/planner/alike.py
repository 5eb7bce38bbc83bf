"""Functions that are alike are planned once: all that a plan depends on is the same, names apart.

Models have many of them: the sides of conditions, blocks that are exported one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from symalloc.planner.buffers.candidate import Candidate, Memory
from symalloc.planner.buffers.candidates import FoundCandidates
from symalloc.planner.memory_plan import Arena, Placement, Plan, Unplanned
from symalloc.program.ir import DeclaredBound, Function, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBefore:
    """A plan, and the candidates that it was made of."""

    plan: Plan
    candidates: FoundCandidates


def structure(
    function: Function, found: FoundCandidates, bounds: Sequence[DeclaredBound] = ()
) -> Hashable | None:
    """Return all that the plan of a function depends on, besides options; None where that is not seen: where
    the function branches, calls others, or learns sizes on the way.  `bounds` are enforced.
    """
    assignment = found.assignment
    if assignment is None or assignment.nesting.cfg.joins or len(assignment.paths) != 1:
        return None
    (path,) = assignment.paths
    if path.calls or any(
        c.memory.definition is not None or c.memory.callee is not None for c in assignment.candidates
    ):
        return None
    return (
        tuple(_structure_of(c) for c in assignment.candidates),
        tuple(path.steps),
        tuple(path.unplanned),
        tuple((one.reason, one.nbytes) for one in found.left),
        tuple(sorted(function.declared_lower.items())),
        tuple(sorted(function.declared_upper.items())),
        assignment.bounds.signed,
        assignment.called,
        tuple(bounds),
    )


def _structure_of(candidate: Candidate) -> Hashable:
    needed = candidate.memory
    sizes = needed.size, needed.nbytes
    return sizes, needed.place, needed.made, candidate.time, needed.returned, needed.grounded


def planned_alike(before: PlannedBefore, name: str, found: FoundCandidates) -> Plan:
    """Return the plan of the function `name`, whose candidates are `found`, after one of equal structure."""
    there, here = before.candidates.assignment, found.assignment
    assert there is not None and here is not None
    pairs = zip(there.candidates, here.candidates, strict=True)
    counterparts: dict[Var | None, Memory] = {old.memory.var: new.memory for old, new in pairs}
    plan = before.plan
    lone = plan.unplanned[len(before.candidates.left) :]
    return replace(
        plan,
        function=name,
        arenas=tuple(_with(arena, counterparts) for arena in plan.arenas),
        unplanned=(*found.left, *_left_out(lone, counterparts)),
    )


def _with(arena: Arena, counterparts: Mapping[Var | None, Memory]) -> Arena:
    def moved(placement: Placement) -> Placement:
        new = counterparts[placement.buffer.var]
        return Placement(replace(placement.buffer, name=new.name, var=new.var), placement.offset)

    return replace(arena, placements=tuple(map(moved, arena.placements)))


def _left_out(lone: tuple[Unplanned, ...], counterparts: Mapping[Var | None, Memory]) -> Iterator[Unplanned]:
    for one in lone:
        yield counterparts[one.var].unplanned(one.reason)

"""Plans one function: buffers, stacking, offsets, guards, and the judgement of an independent validator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from symalloc.plan.buffers import buffers
from symalloc.plan.choose import choose, representatives
from symalloc.plan.guards import overflow_guards
from symalloc.plan.interference import interference
from symalloc.plan.model import Arena, Buffer, Placement, Plan
from symalloc.plan.offsets import arena_size, offsets
from symalloc.plan.options import PlanOptions
from symalloc.plan.validate import PlanRefusedError, validate
from symalloc.program.model import Function, Program
from symalloc.prove.domain import Domain
from symalloc.prove.prover import Prover
from symalloc.size.operations import maximum

__all__ = ["plan_function", "plan_program"]


def plan_program(
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
) -> dict[str, Plan]:
    """A plan for each function of `program`, by name.  Raises PlanRefusedError."""
    return {
        name: plan_function(function, program, prover, options=options)
        for name, function in program.functions.items()
    }


def plan_function(
    function: Function,
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
) -> Plan:
    """A proved plan for `function`: one arena per device and memory scope.

    Dimensions are taken as >= 0; declared bounds steer where buffers are stacked, and no proof relies on
    them.  Raises PlanRefusedError where the plan cannot be proved.
    """
    domain = Domain()
    found, unplanned = buffers(function, program, domain, prover)
    bindings = representatives(function, found)
    arenas = tuple(
        _arena(place, tuple(group), bindings, domain, prover)
        for place, group in groupby(sorted(found, key=_place), key=_place)
    )
    evaluated = {e for a in arenas for e in (a.size, *(p.offset for p in a.placements))}
    plan = Plan(
        function=function.name,
        arenas=arenas,
        unplanned=unplanned,
        guards=overflow_guards(evaluated, domain, prover),
        representative=bindings[0],
    )
    faults = validate(plan, domain, prover)
    if faults:
        raise PlanRefusedError.of(function.name, faults)
    return plan


def _place(buffer: Buffer) -> tuple[int, str]:
    return buffer.device, buffer.scope


def _arena(
    place: tuple[int, str],
    members: Sequence[Buffer],
    bindings: Sequence[Mapping[str, int]],
    domain: Domain,
    prover: Prover,
) -> Arena:
    stacking = choose(members, interference(members), bindings).stacking
    placed = offsets(members, stacking, domain, prover)
    return Arena(
        device=place[0],
        scope=place[1],
        size=arena_size(members, placed, domain, prover),
        placements=tuple(Placement(buffer=b, offset=maximum(*placed[b.id])) for b in members),
    )

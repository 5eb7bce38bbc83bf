"""Plans functions: buffers, stacking, offsets, guards, and the judgement of an independent validator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symalloc.plan.assemble import assemble
from symalloc.plan.buffers import buffers
from symalloc.plan.certificate import plan_certificate, write_certificate
from symalloc.plan.floor import live_sums
from symalloc.plan.guards import guards
from symalloc.plan.interference import interference
from symalloc.plan.model import Arena, Buffer, Plan
from symalloc.plan.options import PlanOptions
from symalloc.plan.search import Effort, Found, search
from symalloc.plan.slots import slots
from symalloc.plan.validate import PlanRefusedError, validate
from symalloc.program.model import Function, Program, Var
from symalloc.prove.domain import Domain
from symalloc.prove.prover import Prover

__all__ = ["plan_function", "plan_program"]


def plan_program(
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
) -> dict[str, Plan]:
    """A plan for each function of `program`, by name.

    Where `options` ask for a certificate it is written once all plans are proved.  Raises PlanRefusedError,
    and OSError where the certificate cannot be written.
    """
    plans = {
        name: plan_function(function, program, prover, options=options)
        for name, function in program.functions.items()
    }
    if options.certificate is not None:
        write_certificate(options.certificate, plan_certificate(plans.values(), Domain(), prover))
    return plans


def plan_function(
    function: Function,
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
) -> Plan:
    """A proved plan for `function`: one arena per device and memory scope, or one per slot ("storages").

    Dimensions are taken as >= 0; declared bounds steer where buffers are stacked, and no proof relies on
    them.  Raises PlanRefusedError where the plan cannot be proved.
    """
    domain = Domain()
    found, unplanned = buffers(function, program, domain, prover)
    ranges = _ranges(function, found)
    arenas: list[Arena] = []
    representative: dict[str, int] = {}
    for members in _by_home(found):
        neighbours = interference(members)
        if options.flavour == "storages":
            arenas += slots(members, neighbours, domain, prover)
            continue
        chosen = _search(members, neighbours, ranges, options)
        representative = {**chosen.representative, **representative}
        arenas.append(_arena(members, chosen, domain, prover))
    plan = Plan(
        function=function.name,
        arenas=tuple(arenas),
        unplanned=unplanned,
        guards=guards(arenas, domain, prover),
        representative=representative,
    )
    faults = validate(plan, domain, prover)
    if faults:
        raise PlanRefusedError.of(function.name, faults)
    return plan


def _by_home(found: Sequence[Buffer]) -> list[list[Buffer]]:
    """The buffers that share an arena: those of one device and scope that is reserved at one moment."""
    homes: dict[tuple[int, str, Var | None], list[Buffer]] = {}
    for buffer in found:
        homes.setdefault((buffer.device, buffer.scope, buffer.after), []).append(buffer)
    return list(homes.values())


def _ranges(function: Function, found: Sequence[Buffer]) -> dict[str, tuple[int, int | None]]:
    """The declared bounds of the symbols that buffers are sized by."""
    names = sorted(frozenset().union(*(b.size.symbols for b in found)))
    lower, upper = function.declared_lower, function.declared_upper
    return {name: (lower.get(name, 1), upper.get(name)) for name in names}


def _search(
    members: Sequence[Buffer],
    neighbours: Mapping[int, frozenset[int]],
    ranges: Mapping[str, tuple[int, int | None]],
    options: PlanOptions,
) -> Found:
    effort = Effort.of(options.effort, seed=options.seed)
    return search(members, neighbours, ranges, effort, live_sums(members))


def _arena(members: Sequence[Buffer], found: Found, domain: Domain, prover: Prover) -> Arena:
    layout = assemble(members, found.regimes, domain, prover)
    home = members[0]
    return Arena(
        device=home.device,
        scope=home.scope,
        after=home.after,
        size=layout.size,
        placements=layout.placements,
    )

"""Plan functions: buffers, stacking, offsets, guards, and the verdict of an independent validator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.planner.buffers.candidates import find_buffers
from symalloc.planner.buffers.sizing import Sizes, known_symbols
from symalloc.planner.check.plan_certificate import plan_certificate, write_certificate
from symalloc.planner.check.validate import PlanFault, PlanRefusedError, validate
from symalloc.planner.enforced_bounds import bound_guards, enforced
from symalloc.planner.layout.assemble import assemble
from symalloc.planner.layout.dominance import PROVER_BUDGET
from symalloc.planner.layout.storage_slots import storage_arenas
from symalloc.planner.memory_plan import Arena, Buffer, Plan
from symalloc.planner.overflow_guards import guards
from symalloc.planner.planner_options import PlanOptions
from symalloc.planner.search.grid import Ranges
from symalloc.planner.search.stacking_search import SearchBudget, search
from symalloc.program.ir import Function, Program, Var
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover

LOOSE = 1.02  # times its floor
MOST_PASSED = 2  # assignments that are given up because an arena is loose


def plan_program(
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    analyses: Mapping[str, FunctionAnalysis] | None = None,
    grounded: Collection[Var] | None = None,
) -> dict[str, Plan]:
    """Return a proved plan for each function of `program`, by name; callees are planned first.

    `analyses` are those of `program`, made where they are not given.  A plan has one arena per device and
    memory scope, or one per slot ("storages").  Dimensions are taken as >= 0, scalars as they come; declared
    bounds steer where buffers are stacked, and no proof relies on them.  Where `options` ask for a
    certificate it is written once all plans are proved.  `grounded` are the allocations that must lie at the
    start of a storage, and so must what callees work in; None where a tensor may lie anywhere.  Raises
    PlanRefusedError for what cannot be proved, and OSError where the certificate cannot be written.
    """
    analyses = analyse(program) if analyses is None else analyses
    plans: dict[str, Plan] = {}
    for name in analyses:
        plans[name] = _plan_function(name, program, analyses, plans, prover, options, grounded)
    plans = {name: plans[name] for name in program.functions}
    if options.certificate is not None:
        write_certificate(options.certificate, certify(plans, analyses, prover))
    return plans


def certify(
    plans: Mapping[str, Plan], analyses: Mapping[str, FunctionAnalysis], prover: Prover
) -> dict[str, str]:
    """Return the proofs of `plans` as files, by name; see `plan_certificate`."""
    judged = ((plan, known_symbols(analyses[name].cfg).domain) for name, plan in plans.items())
    return plan_certificate(judged, prover)


def _plan_function(
    name: str,
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    plans: Mapping[str, Plan],
    prover: Prover,
    options: PlanOptions,
    grounded: Collection[Var] | None,
) -> Plan:
    """Return a proved plan for the function `name`; `plans` are those of the functions that it calls."""
    function = program.functions[name]
    known = known_symbols(analyses[name].cfg)
    bounds = enforced(function, known.domain, options.bounds)
    sizes = Sizes(known, prover, bounds, reserve=options.bounds == "reserve")
    whole = options.constants_apart or options.flavour == "storages"
    barred: frozenset[Var] = frozenset()
    passed = 0
    while True:
        buffers, unplanned = find_buffers(
            program, analyses, name, sizes, plans, barred=barred, whole=whole, passed=passed
        )
        if grounded is not None:
            buffers = tuple(replace(b, grounded=_is_grounded(b, grounded)) for b in buffers)
        plan = Plan(function=name, unplanned=unplanned, guards=bound_guards(bounds))
        loosest = LOOSE if passed < MOST_PASSED and not whole else inf
        try:
            found = _proved(plan, function, buffers, known.domain, sizes.domain, prover, options, loosest)
        except _LooseError:
            passed += 1
            continue
        outgrown = frozenset(_outgrown(found))
        if not outgrown:
            return found
        barred |= outgrown


class _LooseError(Exception):
    """An arena is packed so much above its floor that another choice of arenas may take less."""


def _is_grounded(buffer: Buffer, grounded: Collection[Var]) -> bool:
    """Return whether a buffer must start a storage; a result does so in the memory that is its own."""
    return (buffer.callee is not None or buffer.var in grounded) and not buffer.returned


def _outgrown(plan: Plan) -> Iterator[Var]:
    """Yield the results whose memory would have to be larger than they are, for what else lies in it."""
    for arena in plan.arenas:
        result = arena.result
        if result is not None and result.var is not None and arena.size != result.size:
            yield result.var


def _proved(
    bare: Plan,
    function: Function,
    buffers: Sequence[Buffer],
    domain: Domain,
    bounded: Domain,
    prover: Prover,
    options: PlanOptions,
    loosest: float,
) -> Plan:
    """Return `bare`, whose guards hold in the domain `bounded`, with `buffers` in arenas.

    Raises _LooseError where an arena has more than `loosest` times its floor.
    """
    faults: tuple[PlanFault, ...] = ()
    for arenas, representative in _layouts(function, buffers, options, bounded, prover, loosest):
        plan = replace(
            bare,
            arenas=arenas,
            guards=(*bare.guards, *guards(arenas, bounded, prover)),
            representative=representative,
        )
        faults = validate(plan, domain, prover)
        if not faults:
            return plan
        if any(fault.binding is not None for fault in faults):
            break
    raise PlanRefusedError.of(bare.function, faults)


def _layouts(
    function: Function,
    buffers: Sequence[Buffer],
    options: PlanOptions,
    domain: Domain,
    prover: Prover,
    loosest: float,
) -> Iterator[tuple[tuple[Arena, ...], Mapping[str, int]]]:
    """Yield arenas with the binding that they were stacked at: the tightest layout first, then larger ones
    that are easier to prove.
    """
    whole = [b for b in buffers if b.grounded or options.flavour == "storages"]
    offset = [b for b in buffers if not b.grounded and options.flavour != "storages"]
    slots_of, groups = (_by_arena(each, apart=options.constants_apart) for each in (whole, offset))
    ranges = _ranges(function, buffers)
    found = [search(group, ranges, SearchBudget.of(options.effort, seed=options.seed)) for group in groups]
    if any(one.score.worst > loosest for one in found):
        raise _LooseError
    representative = {name: value for one in reversed(found) for name, value in one.representative.items()}
    for budget, first in ((PROVER_BUDGET, 0), (0, 0), (0, -1)):
        stacked = (
            assemble(group, one.regimes[first:], domain, prover, prover_budget=budget)
            for group, one in zip(groups, found, strict=True)
        )
        slots = (storage_arenas(group, domain, prover, prover_budget=budget) for group in slots_of)
        yield (*stacked, *chain.from_iterable(slots)), representative


def _by_arena(buffers: Iterable[Buffer], *, apart: bool) -> list[list[Buffer]]:
    """Group the buffers that share an arena; with `apart` those of constant size have one of their own."""
    groups: dict[tuple[int, str, int, bool], list[Buffer]] = {}
    for buffer in buffers:
        fixed = apart and buffer.size.as_constant is not None
        groups.setdefault((buffer.device, buffer.scope, buffer.arena, fixed), []).append(buffer)
    return list(groups.values())


def _ranges(function: Function, buffers: Sequence[Buffer]) -> Ranges:
    """Return the declared bounds of the symbols that buffers are sized by; extents may be 0 where none is."""
    names = sorted(frozenset().union(*(b.size.symbols for b in buffers)))
    lower, upper = function.declared_lower, function.declared_upper
    return {name: (lower.get(name, 0), upper.get(name)) for name in names}

"""Plan functions: buffers, stacking, offsets, guards, and the verdict of an independent validator."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.planner.alike import PlannedBefore, planned_alike, structure
from symalloc.planner.buffers.arena_assignment import GivenUp
from symalloc.planner.buffers.call_timeline import CallProfile
from symalloc.planner.buffers.candidates import find_buffers, find_candidates
from symalloc.planner.buffers.sizing import KnownSymbols, Sizes, known_symbols
from symalloc.planner.check.plan_certificate import plan_certificate, write_certificate
from symalloc.planner.check.validate import PlanFault, PlanRefusedError, validate
from symalloc.planner.enforced_bounds import bound_guards, enforced
from symalloc.planner.layout_ladder import LayoutSearch, LooseError, OutgrownError
from symalloc.planner.memory_plan import Buffer, Plan, Rung
from symalloc.planner.overflow_guards import guards
from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.planner_options import PlanOptions
from symalloc.program.ir import DeclaredBound, Program, Var
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover

_LOG = logging.getLogger("symalloc")

LOOSE = 1.02  # times its floor
NEGLIGIBLE = 1e-9
SEVERAL = "several arenas, so that a call takes no more than without a plan"
WHOLE = "whole storages are shared, in which nothing is stacked"
UNPROVED = "no stacking was proved; buffers share whole storages"
MOST_PASSED = 2  # assignments that are given up because an arena is loose
ASSIGNED_EACH = 100  # what an assignment to arenas counts, for each tensor


def plan_program(
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    analyses: Mapping[str, FunctionAnalysis] | None = None,
    grounded: Collection[Var] | None = None,
) -> dict[str, Plan]:
    """Return a proved plan for each function of `program`, by name; callees are planned first.

    `analyses` are those of `program`, made where they are not given.  A plan has arenas for each device and
    memory scope, or one per slot ("storages").  Dimensions are taken as >= 0, scalars as they come;
    declared bounds steer where buffers are stacked, and no proof relies on them unless `options` have them
    enforced.  Where `options` ask for a certificate it is written once all plans are proved.  `grounded`
    are the allocations that must lie at the start of a storage, and so must what callees work in; None
    where a tensor may lie anywhere.  Raises PlanRefusedError for what cannot be proved, and OSError where
    the certificate cannot be written.
    """
    analyses = analyse(program) if analyses is None else analyses
    plans: dict[str, Plan] = {}
    profiles: dict[str, CallProfile] = {}
    shared = _Shared()
    for name in analyses:
        plans[name] = _plan_function(
            name, program, analyses, plans, profiles, prover, options, grounded, shared
        )
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


@dataclass(frozen=True, slots=True)
class _Shared:
    """Plans by structure and sizes over the same symbols, which functions of one program have in common."""

    planned: dict[Hashable, PlannedBefore] = field(default_factory=dict)
    sizes: dict[Hashable, Sizes] = field(default_factory=dict)

    def sizes_of(
        self, known: KnownSymbols, prover: Prover, bounds: Sequence[DeclaredBound], *, reserve: bool
    ) -> Sizes:
        """Return the sizes of a function; those over symbols that are known at entry are worked out once."""
        if known.later:
            return Sizes(known, prover, bounds, reserve=reserve)
        key = known.entry, known.signed, tuple(bounds)
        if key not in self.sizes:
            self.sizes[key] = Sizes(known, prover, bounds, reserve=reserve)
        return self.sizes[key]


def _plan_function(
    name: str,
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    plans: Mapping[str, Plan],
    profiles: dict[str, CallProfile],
    prover: Prover,
    options: PlanOptions,
    grounded: Collection[Var] | None,
    shared: _Shared,
) -> Plan:
    """Return a proved plan for the function `name`, and note its profile where others call it.

    `plans` and `profiles` are those of the functions that it calls.
    """
    function = program.functions[name]
    known = known_symbols(analyses[name].cfg)
    bounds = enforced(function, known.domain, options.bounds)
    sizes = shared.sizes_of(known, prover, bounds, reserve=options.bounds == "reserve")
    candidates = find_candidates(
        program, analyses, name, sizes, plans, profiles, options=options, grounded=grounded
    )
    key = structure(function, candidates, bounds) if len(analyses) > 1 else None
    before = shared.planned.get(key) if key is not None else None
    if before is not None:
        if before.plan.function in profiles:
            profiles[name] = profiles[before.plan.function]
        return planned_alike(before, name, candidates)
    given_up, fallen, first = GivenUp(), False, candidates
    tensors = 0 if candidates.assignment is None else len(candidates.assignment.candidates)
    stacking = options.flavour != "storages"
    budget = PlanBudget.of(options.effort, tensors) if stacking else PlanBudget()
    found = LayoutSearch(function=function, domain=sizes.domain, prover=prover, budget=budget)
    while True:
        buffers, unplanned, profile, spread = find_buffers(candidates, given_up)
        if profile is not None:
            profiles[name] = profile
        rungs = _rungs(buffers, spread, fallen=fallen)
        plan = Plan(function=name, unplanned=unplanned, guards=bound_guards(bounds), rungs=rungs)
        loosest = LOOSE if stacking and not options.graphs else inf
        budget.spend(ASSIGNED_EACH * tensors)
        try:
            proved = _proved(plan, found, buffers, known.domain, options, loosest)
            _log(proved, found.budget)
            if key is not None:
                shared.planned[key] = PlannedBefore(plan=proved, candidates=first)
            return proved
        except LooseError:
            passed = given_up.passed if given_up.merging else given_up.passed + 1
            given_up = replace(given_up, passed=passed, merging=not given_up.merging)
            if passed <= MOST_PASSED and not budget.exhausted:
                continue
        except OutgrownError as error:
            given_up = replace(given_up, barred=given_up.barred | error.results)
            continue
        except _UnprovedError as error:
            if not stacking:
                raise PlanRefusedError.of(name, error.faults) from None
        options, given_up = replace(options, flavour="storages"), GivenUp()
        stacking, fallen = False, True
        found = replace(found, budget=PlanBudget())  # this rung is the last
        candidates = find_candidates(program, analyses, name, sizes, plans, profiles, options=options)


def _log(plan: Plan, budget: PlanBudget) -> None:
    _LOG.debug("planned `%s`: spent %d of a budget of %.0f", plan.function, budget.spent, budget.allowed)
    for rung in plan.rungs:
        _LOG.debug(
            "`%s` fell to %s, %.3f of its floor: %s", plan.function, rung.kind, rung.ratio, rung.reason
        )


def _rungs(buffers: Sequence[Buffer], spread: float, *, fallen: bool) -> tuple[Rung, ...]:
    """Return the rung that an assignment with `spread` stands on; `fallen`: nothing else was proved."""
    if fallen:
        return (Rung(kind="storages", reason=UNPROVED, ratio=spread),)
    if spread <= 1 + NEGLIGIBLE:
        return ()
    if any(b.grounded for b in buffers):
        return (Rung(kind="storages", reason=WHOLE, ratio=spread),)
    return (Rung(kind="arenas", reason=SEVERAL, ratio=spread),)


class _UnprovedError(Exception):
    """No layout was proved, nor refuted at a binding."""

    def __init__(self, faults: tuple[PlanFault, ...]) -> None:
        super().__init__()
        self.faults = faults


def _proved(
    bare: Plan,
    found: LayoutSearch,
    buffers: Sequence[Buffer],
    domain: Domain,
    options: PlanOptions,
    loosest: float,
) -> Plan:
    """Return `bare`, whose guards hold in the domain of `found`, with `buffers` in arenas, over `domain`.

    Raises as `LayoutSearch.layouts` does, PlanRefusedError where a layout is wrong at a binding, and
    _UnprovedError where none is proved.
    """
    faults: tuple[PlanFault, ...] = ()
    for layout in found.layouts(buffers, options, loosest=loosest):
        plan = replace(
            bare,
            arenas=layout.arenas,
            guards=(*bare.guards, *guards(layout.arenas, found.domain, found.prover)),
            representative=layout.representative,
            rungs=(*bare.rungs, *layout.rungs),
        )
        faults = validate(plan, domain, found.prover)
        if not faults:
            return plan
        if any(fault.binding is not None for fault in faults):
            raise PlanRefusedError.of(bare.function, faults)
    raise _UnprovedError(faults)

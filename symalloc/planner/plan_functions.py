"""Plan functions: buffers, stacking, offsets, guards, and the verdict of an independent validator."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.planner.buffers.assignment import ONE_BY_ONE, UNRESTRICTED, Assignment, Restrictions, assign
from symalloc.planner.buffers.call_timeline import CallProfile
from symalloc.planner.buffers.candidates import Candidates, find_candidates, left_alone
from symalloc.planner.buffers.sizing import KnownSymbols, Sizes, known_symbols
from symalloc.planner.check.plan_certificate import plan_certificate, write_certificate
from symalloc.planner.check.validate import PlanFault, PlanRefusedError, validate
from symalloc.planner.enforced_bounds import bound_guards, enforced
from symalloc.planner.layouts import Layout, LayoutSearch
from symalloc.planner.memory_plan import Plan, Rung
from symalloc.planner.overflow_guards import guards
from symalloc.planner.planner_options import PlanBudget, PlanOptions
from symalloc.planner.shapes import ExtentBounds
from symalloc.planner.stack import SearchResult
from symalloc.program.ir import DeclaredBound, Program, Var
from symalloc.prover.prover import Prover

_LOG = logging.getLogger("symalloc")

MOST_ASSIGNMENTS = 3  # that are tried one after the other
NEGLIGIBLE = 1e-9
SEVERAL = "several arenas, so that a call takes no more than without a plan"
WHOLE = "whole storages are shared, in which nothing is stacked"
UNPROVED = "no stacking was proved; buffers share whole storages"


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
    shared = _Shared()
    for name in analyses:
        plans[name] = _plan_function(name, program, analyses, plans, prover, options, grounded, shared)
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
    """The things that functions of one program share: sizes over the same symbols, stackings of equal
    structure, and the profiles of those that others call.
    """

    sizes: dict[Hashable, Sizes] = field(default_factory=dict)
    stackings: dict[Hashable, SearchResult] = field(default_factory=dict)
    profiles: dict[str, CallProfile] = field(default_factory=dict)

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
    prover: Prover,
    options: PlanOptions,
    grounded: Collection[Var] | None,
    shared: _Shared,
) -> Plan:
    """Return the first proved plan of the function `name`: as `options` ask, else with whole storages.

    `plans` are those of the functions that it calls.  Raises PlanRefusedError.
    """
    function, known = program.functions[name], known_symbols(analyses[name].cfg)
    bounds, reserve = enforced(function, known.domain, options.bounds), options.bounds == "reserve"
    sizes = shared.sizes_of(known, prover, bounds, reserve=reserve)
    upper = function.declared_upper if reserve else {}
    extents = ExtentBounds(function.declared_lower, upper, known.may_be_negative)
    faults: tuple[PlanFault, ...] = ()
    for storages in (False, True) if options.flavour != "storages" else (True,):
        candidates = find_candidates(
            program, analyses, name, sizes, plans, storages=storages, grounded=grounded
        )
        search = LayoutSearch(
            function=function,
            domain=sizes.domain,
            prover=prover,
            options=options,
            budget=PlanBudget() if storages else PlanBudget.of(options.effort, len(candidates.buffers)),
            known=shared.stackings,
        )
        for found, layout in _layouts(candidates, search, extents, shared):
            bare = Plan(
                function=name,
                unplanned=(*candidates.left, *left_alone(found.lone)),
                guards=bound_guards(bounds),
                rungs=_rungs(found, fallen=storages and options.flavour != "storages"),
            )
            plan = _with_layout(bare, found, layout, search)
            faults = validate(plan, known.domain, prover)
            if not faults:
                if found.profile is not None:
                    shared.profiles[name] = found.profile
                _log(plan, search.budget)
                return plan
            if any(fault.binding is not None for fault in faults):
                raise PlanRefusedError.of(name, faults)
    raise PlanRefusedError.of(name, faults)


def _layouts(
    candidates: Candidates, search: LayoutSearch, bounds: ExtentBounds, shared: _Shared
) -> Iterator[tuple[Assignment, Layout]]:
    """Yield assignments with their layouts, none of which makes the memory of a result larger than that is.

    Those with which a call takes more than it may come last, of them first the one that takes least.
    """
    restrictions, loose = UNRESTRICTED, []
    for left in reversed(range(MOST_ASSIGNMENTS)):
        found = assign(candidates, shared.profiles, bounds, search.options, restrictions=restrictions)
        outgrown: set[Var] = set()
        for layout in search.layouts(found.arenas):
            outgrown |= layout.outgrown
            if layout.outgrown:
                continue
            excess = found.excess([arena.size for arena in layout.arenas])
            if excess <= max(1.0, found.beyond) or search.options.graphs:
                yield found, layout
            else:
                loose.append((excess, found, layout))
        first = restrictions.first if outgrown else found.attempt + 1 if left > 1 else ONE_BY_ONE
        excluded = restrictions.excluded_results | outgrown
        restrictions = Restrictions(excluded_results=excluded, first=first)
    yield from (one[1:] for one in sorted(loose, key=lambda one: one[0]))


def _with_layout(bare: Plan, found: Assignment, layout: Layout, search: LayoutSearch) -> Plan:
    pairs = zip(layout.arenas, found.further, strict=True)
    arenas = tuple(arena if why is None else replace(arena, further=why) for arena, why in pairs)
    return replace(
        bare,
        arenas=arenas,
        guards=(*bare.guards, *guards(arenas, search.domain, search.prover)),
        representative=layout.representative,
        rungs=(*bare.rungs, *layout.rungs),
    )


def _log(plan: Plan, budget: PlanBudget) -> None:
    _LOG.debug("planned `%s`: spent %d of a budget of %.0f", plan.function, budget.spent, budget.allowed)
    for rung in plan.rungs:
        _LOG.debug(
            "`%s` fell to %s, %.3f of its floor: %s", plan.function, rung.kind, rung.ratio, rung.reason
        )


def _rungs(found: Assignment, *, fallen: bool) -> tuple[Rung, ...]:
    """Return the rung that an assignment stands on; `fallen`: nothing else was proved."""
    if fallen:
        return (Rung(kind="storages", reason=UNPROVED, ratio=found.spread),)
    if found.spread <= 1 + NEGLIGIBLE:
        return ()
    if any(b.grounded for arena in found.arenas for b in arena):
        return (Rung(kind="storages", reason=WHOLE, ratio=found.spread),)
    return (Rung(kind="arenas", reason=SEVERAL, ratio=found.spread),)

"""Plan functions: buffers, stacking, offsets, guards, and the verdict of an independent validator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from symalloc.analysis.dependencies import HappensBefore, dependency_graph
from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse, analyse_variant
from symalloc.analysis.timeline import Timeline
from symalloc.planner.buffers.assignment import (
    MOST_CHOICES,
    ONE_BY_ONE,
    UNRESTRICTED,
    Assignment,
    Restrictions,
    assign,
)
from symalloc.planner.buffers.candidates import Candidates, Sizes, find_candidates, known_symbols, left_alone
from symalloc.planner.check.plan_certificate import plan_certificate
from symalloc.planner.check.validate import PlanFault, PlanRefusedError, validate
from symalloc.planner.grid import ExtentBounds, Ranges, symbols_of
from symalloc.planner.interference import HeldInOrder, peaks_beside, reordered
from symalloc.planner.memory_plan import GIVEN, Arena, Buffer, Fallback, Plan, PlanBudget, PlanOptions
from symalloc.planner.offsets import assemble, storage
from symalloc.planner.overflow_guards import beyond, bound_guards, bounded, enforced, guards, too_large
from symalloc.planner.planned_program import written_function
from symalloc.planner.stack import PERFECT, SearchBudget, search
from symalloc.program.ir import DeclaredBound, Function, Program, Var
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import conjunction

WRITTEN_EACH = 20  # what a term of a formula counts that is proved and written


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Arenas, and the fallbacks that were taken."""

    arenas: tuple[Arena, ...]
    fallbacks: tuple[Fallback, ...] = ()

    @property
    def outgrown(self) -> frozenset[Var]:
        """The results whose memory would have to be larger than they are, for what else lies in it."""
        results = ((arena.result, arena.size) for arena in self.arenas)
        return frozenset(
            r.var for r, size in results if r is not None and r.var is not None and size != r.size
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSearch:
    """Finds layouts of `function` over `domain`.

    All of them spend `budget` on formulas and proofs, and as much again each on its search.
    """

    function: Function
    domain: Domain
    prover: Prover
    options: PlanOptions
    budget: PlanBudget = field(default_factory=PlanBudget)

    def layout(
        self, arenas: Sequence[Sequence[Buffer]], shapes: Sequence[Mapping[str, int]] = ()
    ) -> Layout | None:
        """Return the tightest layout found of the buffers of each arena, also at `shapes`; None where its
        formulas are too long.
        """
        ranges = _ranges(self.function, [b for buffers in arenas for b in buffers])
        budget = SearchBudget.of(self.options.effort, seed=self.options.seed)
        searching, made = PlanBudget(self.budget.allowed), list[Arena]()
        worst = 1.0
        for buffers in arenas:
            if buffers[0].grounded:
                arena: Arena | None = storage(buffers, self.domain)
            else:
                found = search(buffers, ranges, budget, searching, shapes)
                worst = max(worst, found.score.worst)
                arena = assemble(buffers, found.stacking, self.domain, self.budget)
            if arena is None:
                return None
            made.append(arena)
        self.budget.spend(_written(made))
        if self.budget.exhausted:
            return None
        fallbacks = (Fallback(kind="search", reason=NOT_FOUND, ratio=worst),) if worst > PERFECT else ()
        return Layout(arenas=tuple(made), fallbacks=fallbacks)

    def beyond(self, layout: Layout) -> tuple[Mapping[str, int], ...]:
        """Return bindings at which an arena takes more than one buffer may, and than its largest tensor."""
        if self.options.most is None:
            return ()
        domain = bounded(self.function, self.domain)
        return tuple(beyond(layout.arenas, self.options.most, domain, self.prover))


def _written(arenas: Sequence[Arena]) -> int:
    """Return what it counts to prove the formulas of arenas and to write them down."""
    formulas = {e for arena in arenas for e in (arena.size, *(p.offset for p in arena.placements))}
    return WRITTEN_EACH * sum(len(formula.terms) for formula in formulas)


def _ranges(function: Function, buffers: Sequence[Buffer]) -> Ranges:
    """Return the declared bounds of the symbols that buffers are sized by; extents may be 0 where none is."""
    lower, upper = function.declared_lower, function.declared_upper
    return {name: (lower.get(name, 0), upper.get(name)) for name in symbols_of(b.size for b in buffers)}


_LOG = logging.getLogger("symalloc")

NOT_FOUND = "no stacking at the floor was found within the budget of the search"
SEVERAL = "several arenas, so that a call takes no more than without a plan"
WHOLE = "whole storages are shared, in which nothing is stacked"
UNPROVED = "no stacking was proved; buffers share whole storages"


def plan_program(
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    analyses: Mapping[str, FunctionAnalysis] | None = None,
    grounded: Collection[Var] = (),
    proved: bool = True,
) -> dict[str, Plan]:
    """Return a proved plan for each function of `program`, by name; callees are planned first.

    `analyses` are those of `program`, made where they are not given.  A plan has arenas for each device and
    memory scope, or one per slot ("storages").  Dimensions are taken as >= 0, scalars as they come;
    declared bounds steer where buffers are stacked, and no proof relies on them unless `options` have them
    enforced.  `grounded` are the allocations that must lie at the start of a storage.  Raises
    PlanRefusedError for what cannot be proved; where plans are only compared, they need not be `proved`.
    """
    analyses = analyse(program) if analyses is None else analyses
    plans: dict[str, Plan] = {}
    functions = dict(program.functions)
    for name, analysis in analyses.items():
        _LOG.info("planning `%s`", name, extra={"done": len(plans), "total": len(analyses)})
        judged = replace(program, functions=functions)
        made = partial(_plan_in, name, judged, analyses, prover, grounded, proved)
        plans[name] = _plan_function(name, judged, analyses, options, made)
        if analysis.called:
            functions[name] = written_function(plans[name], analysis.cfg)
    return {name: plans[name] for name in program.functions}


def all_proved(plans: Mapping[str, Plan], analyses: Mapping[str, FunctionAnalysis], prover: Prover) -> bool:
    """Return whether each of `plans` is proved."""
    judged = ((plan, known_symbols(analyses[name].cfg).domain) for name, plan in plans.items())
    return not any(validate(plan, domain, prover) for plan, domain in judged)


def certify(
    plans: Mapping[str, Plan],
    analyses: Mapping[str, FunctionAnalysis],
    prover: Prover,
    texts: Mapping[str, str],
) -> dict[str, str]:
    """Return the proofs of `plans` as files, by name; see `plan_certificate`."""
    judged = ((plan, known_symbols(analyses[name].cfg).domain) for name, plan in plans.items())
    return plan_certificate(judged, prover, texts=texts)


def _plan_function(
    name: str,
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    options: PlanOptions,
    planned: Callable[[PlanOptions], Plan],
) -> Plan:
    """Return a plan of the function `name`, as it is `planned` for the order that `options` ask for.

    With "auto" it is one for any order that the dependency graph permits, if that takes no more memory.
    """

    def written(plan: Plan) -> Program:
        function = written_function(plan, analyses[name].cfg)
        return replace(program, functions={**program.functions, name: function})

    if options.order == "total":
        return planned(options)
    plain = planned(replace(options, order="total"))
    other = planned(replace(options, order=options.searched))
    ordered = written(other)
    variant = analyse_variant(ordered, ordered.functions[name], analyses)
    relation = HappensBefore(graph=dependency_graph(variant), order=options.searched)
    held = HeldInOrder(Timeline.of(ordered, name), relation)
    domain = known_symbols(analyses[name].cfg).domain
    peaks = peaks_beside(held, Timeline.of(written(plain), name), domain)
    cost = max(mine / max(theirs, 1) for mine, theirs in peaks) - 1.0 if peaks else None
    kept = options.order == "auto" and (cost is None or cost > 0)
    return replace(plain if kept else other, order_cost=cost)


def _plan_in(
    name: str,
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    prover: Prover,
    grounded: Collection[Var],
    proved: bool,
    options: PlanOptions,
) -> Plan:
    """Return the first proved plan of the function `name`: as `options` ask, else with whole storages.

    The functions that it calls are in `program` as they are planned.  Raises PlanRefusedError.
    """
    function, known = program.functions[name], known_symbols(analyses[name].cfg)
    sized_by = _sized_by(function, analyses[name]) if options.reserves else ()
    bounds = enforced(function, known.domain, options.bounds, sized_by)
    asked, options = options.bounds, options.picked(bounds)
    if options.arena == "caller" and function.takes_memory:
        options = replace(options, kept=GIVEN)
    reserve = options.bounds == "reserve"
    sizes = Sizes(known, prover, bounds, reserve=reserve)
    upper = function.declared_upper if reserve else {}
    extents = ExtentBounds(function.declared_lower, upper, frozenset(known.later))
    faults: tuple[PlanFault, ...] = ()
    for storages in (False, True) if options.flavour != "storages" else (True,):
        candidates = find_candidates(program, analyses, name, sizes, storages=storages, grounded=grounded)
        free = storages or options.order != "total"
        if options.order != "total":
            candidates = _reordered(candidates, analyses[name], options)
        search = LayoutSearch(
            function=function,
            domain=sizes.domain,
            prover=prover,
            options=options,
            budget=PlanBudget() if free else PlanBudget.of(options.effort, len(candidates.buffers)),
        )
        for found, layout in _layouts(candidates, search, extents):
            bare = Plan(
                function=name,
                unplanned=(*candidates.left, *left_alone(found.lone)),
                guards=bound_guards(bounds),
                fallbacks=_fallbacks(found, fallen=storages and options.flavour != "storages"),
                picked=_picked(options, bounds) if asked == "auto" else "",
                order=options.searched,
            )
            plan = _with_layout(bare, found, layout, search)
            faults = validate(plan, known.domain, prover) if proved else ()
            if not faults:
                if options.most is not None:
                    domain = bounded(function, known.domain)
                    large = too_large(candidates.buffers, candidates.left, options.most, domain, prover)
                    plan = replace(plan, too_large=tuple(large))
                if plan.picked:
                    _LOG.info("memory of `%s` is %s", plan.function, plan.picked)
                return plan
            if any(fault.binding is not None for fault in faults):
                raise PlanRefusedError.of(name, faults)
    raise PlanRefusedError.of(name, faults)


def _reordered(candidates: Candidates, analysis: FunctionAnalysis, options: PlanOptions) -> Candidates:
    """Return the candidates with the live ranges that they have where dispatches run in another order."""
    relation = HappensBefore(graph=dependency_graph(analysis), order=options.searched)
    numbers = [analysis.allocations[b.var].number for b in candidates.buffers if b.var is not None]
    ranges = _ranges(analysis.cfg.function, candidates.buffers)
    return replace(candidates, buffers=reordered(candidates.buffers, numbers, relation, ranges))


def _sized_by(function: Function, analysis: FunctionAnalysis) -> frozenset[str]:
    """Return the symbols that memory which may be reserved is sized by."""
    if analysis.recursive:
        return frozenset()
    wanted = (None, RETURNED) if function.bounded_results else (None,)
    made = (n for _, n, reason in analysis.allocations.values() if n is not None and reason in wanted)
    return frozenset().union(*(nbytes.symbols for nbytes in made))


def _picked(options: PlanOptions, bounds: Sequence[DeclaredBound]) -> str:
    """Return what "auto" stands for in a function, and why, in words."""
    if options.bounds == "reserve":
        return f"reserved for {conjunction(b.condition for b in bounds)}, as {options.kept}"
    if options.guards == "none":
        return "sized at each call, as no guard checks a bound"
    return "sized at each call, as no declared bound sizes a tensor"


def _layouts(
    candidates: Candidates, search: LayoutSearch, bounds: ExtentBounds
) -> Iterator[tuple[Assignment, Layout]]:
    """Yield assignments with their layouts, none of which makes the memory of a result larger than that is.

    Those with which a call takes more than it may come last, of them first the one that takes least.
    """
    restrictions, loose = UNRESTRICTED, []
    for left in reversed(range(MOST_CHOICES)):
        found = assign(candidates, bounds, search.options, restrictions=restrictions)
        layout = search.layout(found.arenas, found.shapes)
        outgrown = frozenset[Var]() if layout is None else layout.outgrown
        beyond_limit = () if layout is None else search.beyond(layout)
        kept = bool(outgrown or beyond_limit)
        if layout is not None and not kept:
            excess = found.excess([arena.size for arena in layout.arenas])
            free = search.options.kept or search.options.order != "total"
            if free or excess <= 1.0 or excess <= found.excess():
                yield found, layout
            else:
                loose.append((excess, found, layout))
        first = restrictions.first if kept else found.attempt + 1 if left > 1 else ONE_BY_ONE
        excluded = restrictions.excluded_results | outgrown
        shapes = restrictions.shapes + beyond_limit
        restrictions = Restrictions(excluded_results=excluded, first=first, shapes=shapes)
    yield from (one[1:] for one in sorted(loose, key=lambda one: one[0]))


def _with_layout(bare: Plan, found: Assignment, layout: Layout, search: LayoutSearch) -> Plan:
    pairs = zip(layout.arenas, found.further, strict=True)
    arenas = tuple(arena if why is None else replace(arena, further=why) for arena, why in pairs)
    arenas = Arena.from_caller(arenas) if search.options.given else arenas
    return replace(
        bare,
        arenas=arenas,
        guards=(*bare.guards, *guards(arenas, search.domain, search.prover)),
        fallbacks=(*bare.fallbacks, *layout.fallbacks),
    )


def _fallbacks(found: Assignment, *, fallen: bool) -> tuple[Fallback, ...]:
    """Return the fallback that an assignment stands on; `fallen`: nothing else was proved."""
    if fallen:
        return (Fallback(kind="storages", reason=UNPROVED, ratio=found.spread),)
    if found.spread <= PERFECT:
        return ()
    if any(b.grounded for arena in found.arenas for b in arena):
        return (Fallback(kind="storages", reason=WHOLE, ratio=found.spread),)
    return (Fallback(kind="arenas", reason=SEVERAL, ratio=found.spread),)

"""Plans functions: buffers, stacking, offsets, guards, and the judgement of an independent validator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.planner.buffers.candidates import find_buffers
from symalloc.planner.buffers.symbol_definitions import known_symbols
from symalloc.planner.check.plan_certificate import plan_certificate, write_certificate
from symalloc.planner.check.plan_fault import PlanFault, PlanRefusedError
from symalloc.planner.check.validate import validate
from symalloc.planner.floor import live_sums
from symalloc.planner.interference import interference
from symalloc.planner.layout.assemble import Regimes, assemble
from symalloc.planner.layout.dominance import PATIENCE
from symalloc.planner.layout.storages import storage_arenas
from symalloc.planner.memory_plan import Arena, Buffer, Plan
from symalloc.planner.options import PlanOptions
from symalloc.planner.overflow_guards import guards
from symalloc.planner.search.stacking_search import SearchBudget, SearchResult, search
from symalloc.program.model import Function, Program, Var
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover

_NO_PLANS: Mapping[str, Plan] = MappingProxyType({})


def plan_program(
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    analyses: Mapping[str, FunctionAnalysis] | None = None,
) -> dict[str, Plan]:
    """A plan for each function of `program`, by name; callees are planned first.

    `analyses` are those of the program, made where they are not given.  Where `options`
    ask for a certificate it is written once all plans are proved.  Raises PlanRefusedError, and OSError where
    the certificate cannot be written.
    """
    analyses = analyse(program) if analyses is None else analyses
    plans: dict[str, Plan] = {}
    for name in analyses:
        function = program.functions[name]
        plans[name] = plan_function(
            function, program, prover, options=options, plans=plans, analyses=analyses
        )
    plans = {name: plans[name] for name in program.functions}
    if options.certificate is not None:
        judged = ((plan, known_symbols(analyses[name].cfg).domain) for name, plan in plans.items())
        write_certificate(options.certificate, plan_certificate(judged, prover))
    return plans


def plan_function(
    function: Function,
    program: Program,
    prover: Prover,
    *,
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    plans: Mapping[str, Plan] = _NO_PLANS,
    analyses: Mapping[str, FunctionAnalysis] | None = None,
) -> Plan:
    """A proved plan for `function`: one arena per device and memory scope, or one per slot ("storages").

    `plans` are those of the functions that it calls, whose memory it sets aside; `analyses` those of the
    program, made where they are not given.  Dimensions are taken as >= 0, scalars
    as they come; declared bounds steer where buffers are stacked, and no proof relies on them.  Raises
    PlanRefusedError for what cannot be proved.
    """
    analyses = analyse(program) if analyses is None else analyses
    domain = known_symbols(analyses[function.name].cfg).domain
    found, unplanned = find_buffers(function, program, domain, prover, plans, analyses)
    placed = _PlacedBuffers.of(function, found, options)
    faults: tuple[PlanFault, ...] = ()
    for arenas in placed.attempts(domain, prover):
        plan = Plan(
            function=function.name,
            arenas=arenas,
            unplanned=unplanned,
            guards=guards(arenas, domain, prover),
            representative=placed.representative,
        )
        faults = validate(plan, domain, prover)
        if not faults:
            return plan
        if any(fault.binding is not None for fault in faults):
            break
    raise PlanRefusedError.of(function.name, faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedBuffers:
    """The buffers that share an arena, for each arena, with the stackings found; none where whole storages
    are wanted.
    """

    homes: Sequence[Sequence[Buffer]]
    found: Sequence[SearchResult]

    @classmethod
    def of(cls, function: Function, found: Sequence[Buffer], options: PlanOptions) -> _PlacedBuffers:
        homes = _by_home(found)
        if options.flavour == "storages":
            return cls(homes=homes, found=())
        ranges = _ranges(function, found)
        return cls(homes=homes, found=[_search(members, ranges, options) for members in homes])

    @property
    def representative(self) -> Mapping[str, int]:
        return {name: value for found in reversed(self.found) for name, value in found.representative.items()}

    def attempts(self, domain: Domain, prover: Prover) -> Iterator[tuple[Arena, ...]]:
        """The arenas, as short as can be; then what is easier to prove, should that proof fall short."""
        for patience, regimes in ((PATIENCE, True), (0, True), (0, False)):
            if not self.found:
                yield tuple(
                    arena
                    for members in self.homes
                    for arena in storage_arenas(
                        members, interference(members), domain, prover, patience=patience
                    )
                )
                continue
            yield tuple(
                _arena(members, found.regimes if regimes else found.regimes[-1:], domain, prover, patience)
                for members, found in zip(self.homes, self.found, strict=True)
            )


def _by_home(found: Sequence[Buffer]) -> list[list[Buffer]]:
    """The buffers that share an arena: those of one device and scope that is reserved at one moment."""
    homes: dict[tuple[int, str, Var | None], list[Buffer]] = {}
    for buffer in found:
        homes.setdefault((buffer.device, buffer.scope, buffer.after), []).append(buffer)
    return list(homes.values())


def _ranges(function: Function, found: Sequence[Buffer]) -> dict[str, tuple[int, int | None]]:
    """The declared bounds of the symbols that buffers are sized by; extents may be 0 where none is."""
    names = sorted(frozenset().union(*(b.size.symbols for b in found)))
    lower, upper = function.declared_lower, function.declared_upper
    return {name: (lower.get(name, 0), upper.get(name)) for name in names}


def _search(
    members: Sequence[Buffer], ranges: Mapping[str, tuple[int, int | None]], options: PlanOptions
) -> SearchResult:
    effort = SearchBudget.of(options.effort, seed=options.seed)
    return search(members, interference(members), ranges, effort, live_sums(members))


def _arena(
    members: Sequence[Buffer], regimes: Regimes, domain: Domain, prover: Prover, patience: int
) -> Arena:
    layout = assemble(members, regimes, domain, prover, patience=patience)
    home = members[0]
    return Arena(
        device=home.device,
        scope=home.scope,
        after=home.after,
        size=layout.size,
        placements=layout.placements,
    )

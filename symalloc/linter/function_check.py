"""Checks one function: every site, every rule that asks there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from symalloc.analysis.facts import Facts
from symalloc.analysis.regions import Pointees, Region
from symalloc.linter.diagnostic import LintSummary
from symalloc.linter.finding import Finding
from symalloc.linter.function_prover import ANY_PASS, PlacedConstraint, domain_of
from symalloc.linter.sites.site import (
    IN_FUNCTIONS,
    IN_INSTRUCTIONS,
    ConstraintSite,
    FunctionContext,
    RelationSite,
    Site,
    load_sites,
)
from symalloc.linter.sites.storages import absolute_offset, divisor_site, storages_of
from symalloc.program import ir
from symalloc.program.ir import DeclaredBound, Instruction
from symalloc.program.operands import type_of
from symalloc.program.types import TensorType
from symalloc.prover.verdict import Proof, Verdict
from symalloc.rulebook.book import Rulebook
from symalloc.rulebook.rule import Rule
from symalloc.size.condition import FALSE, Condition, conjunction
from symalloc.size.defined import evaluated_divisors
from symalloc.size.expr import Expr

_NAMED = 3
_SUBJECTS = ("tensor", "first", "what", "storage", "argument", "callee", "variable")


def _bound_site(bounds: Sequence[DeclaredBound], dependents: Sequence[Finding]) -> RelationSite:
    """The site of the bounds of one symbol, where the first of `dependents` stands."""
    first, count = dependents[0], len(dependents)
    texts = {
        "symbol": bounds[0].symbol,
        "declared": " and ".join(bound.text for bound in bounds),
        "check": str(conjunction(bound.condition for bound in bounds)),
        "count": "1 constraint needs" if count == 1 else f"{count} constraints need",
        "needed_by": _listed(finding.site for finding in dependents),
    }
    return RelationSite(
        kind="declared-bound",
        instruction=first.site.instruction,
        span=first.site.span,
        relation="bound-not-enforced",
        texts=texts,
    )


def _smallest_told(dependents: Iterable[Finding]) -> Proof | None:
    """The proof with the least counterexample, of those that depend on the shapes."""
    told = [f for f in dependents if f.verdict is Verdict.RUNTIME_CHECK]
    told.sort(key=lambda f: sorted((f.counterexample or {"": 2**64}).values())[::-1])
    return told[0].proof if told else None


def _listed(sites: Iterable[Site]) -> str:
    """The names of sites in a message: `a`, `b`, `c` and 3 more."""
    subjects = (next((s.texts[key] for key in _SUBJECTS if key in s.texts), s.kind) for s in sites)
    names = list(dict.fromkeys(subjects))
    shown = [f"`{name}`" for name in names[:_NAMED]]
    rest = len(names) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


class MemoKeys:
    """Makes the memo keys of the instructions of one function."""

    def __init__(self, context: FunctionContext) -> None:
        self.context = context
        self._storages: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def of(self, instruction: ir.Instruction) -> Hashable | None:
        """The key of `instruction`; None where it is too cheap to check, or too rare, to have one."""
        kind = type(instruction)
        make = _KEYS.get(kind)
        return None if make is None else (kind, make(self, instruction))

    def alloc_tensor(self, alloc: ir.AllocTensor) -> Hashable:
        kind = alloc.var.type
        typed = type(kind) is TensorType and kind.shape is alloc.shape and kind.dtype is alloc.dtype
        shape = None if typed else (alloc.shape, alloc.dtype)
        places = tuple([self.storage(region) for region in storages_of(self.context, alloc)])
        return kind, shape, alloc.offset, alloc.device, places

    def storage(self, region: Region) -> int:
        """A number for all that matters of a storage."""
        found = self._storages.get(region.number)
        if found is None:
            key = (region.nbytes, _storage(region.instruction), self.context.is_known_elsewhere(region))
            found = self._storages[region.number] = self._numbers.setdefault(key, len(self._numbers))
        return found

    def argument(self, operand: ir.Operand) -> Hashable:
        if type(operand) is not ir.Var:
            return operand
        value = self.context.points_to.value_of(operand)
        if type(value) is Pointees and value.offset is not None and not value.offset.terms:
            return operand.type
        return operand.type, tuple(self.context.points_to.offsets(operand))

    def call_kernel(self, call: ir.CallKernel) -> Hashable:
        return call.kernel, *map(self.argument, call.arguments)

    def call_tir(self, call: ir.CallTIR) -> Hashable:
        return call.kernel, tuple(map(self.argument, call.inputs)), call.outputs, call.inplace

    def view(self, view: ir.View) -> Hashable:
        folded = absolute_offset(self.context, view)
        written = view.var in self.context.written_views
        return view.kind, view.offset, view.shape, view.dtype, type_of(view.source), folded, written


def _storage(made: ir.Instruction | None) -> Hashable:
    if not isinstance(made, ir.AllocStorage):
        return None
    return made.size, made.device, made.scope, made.dtype, made.dialect


_KEYS: Mapping[type, Callable[[MemoKeys, Any], Hashable]] = {
    ir.AllocStorage: lambda _, i: _storage(i),
    ir.AllocTensor: MemoKeys.alloc_tensor,
    ir.AllocFresh: lambda _, i: (i.shape, i.dtype, i.device, i.scope),
    ir.View: MemoKeys.view,
    ir.CallKernel: MemoKeys.call_kernel,
    ir.CallTIR: MemoKeys.call_tir,
}


load_sites()

SomeSite = TypeVar("SomeSite", bound=Site)
Asked = TypeVar("Asked", Instruction, Site)

_DEEPER = "no call that was followed gets there, others may"


@dataclass(slots=True)
class _Clean:
    """The constraints of an instruction, or a site, that was clean, and how often one like it came again."""

    summary: LintSummary
    repeated: int = 0


class FunctionCheck:
    """Finds the faults of one function.

    `findings` are in no order; `bound_dependent` are those that declared bounds rule out.  Instructions of
    equal structure and equal facts fare alike: one that was clean is not looked at again.
    """

    def __init__(self, context: FunctionContext, rulebook: Rulebook) -> None:
        self.context, self.rulebook, self.prover = context, rulebook, context.prover
        self.summary = LintSummary(functions=1)
        self.findings: list[Finding] = []
        self.bound_dependent: list[Finding] = []
        self._clean: dict[Hashable, _Clean] = {}
        self._memo_keys = MemoKeys(context)
        self._kept: dict[Hashable, list[Finding]] = {}
        self._divided: set[tuple[Expr, Facts]] = set()
        self._broke = False

    def run(self, *, expanded: FunctionCheck | None = None) -> None:
        """Check all sites.

        Those that ask in what order memory is written and read are asked in `expanded`, the check of the
        function with its calls written out, if there is one; and nowhere if it is written out in all that
        call it.
        """
        if expanded is not None:
            expanded.memory_order()
            self.absorb(expanded)
        elif self.context.function.name not in self.context.shared.seen_in_callers:
            self.memory_order()
        self._in_functions(expanded=False)
        asked: Sequence[tuple[int, Instruction]] = self.context.analysis.cfg.of_type(*IN_INSTRUCTIONS)
        for point, instruction in asked:
            key = self._memo_keys.of(instruction)
            self._unless_clean(key, point, self._instruction, instruction)
        self._count_repeated()

    def memory_order(self) -> None:
        """Check the sites that ask in what order memory is written and read."""
        self._in_functions(expanded=True)
        self._count_repeated()
        if self.context.function.name in self.context.shared.seen_in_part:
            doubted = {finding: finding.doubted(_DEEPER) for finding in self.findings}
            self.findings = list(doubted.values())
            self._kept = {key: [doubted[one] for one in alike] for key, alike in self._kept.items()}

    def absorb(self, other: FunctionCheck) -> None:
        """Take over what `other` found in another form of the function."""
        for finding in other.findings:
            self.keep(finding)
        self.bound_dependent += other.bound_dependent
        self.summary.add(replace(other.summary, functions=0))

    def _in_functions(self, *, expanded: bool) -> None:
        for generator in IN_FUNCTIONS:
            if generator.expanded is expanded and any(map(self.rulebook.by_site, generator.kinds)):
                for point, site in generator.generate(self.context):
                    self._unless_clean(site.memo_key, point, self._site, site)

    def keep(self, finding: Finding) -> None:
        """Keep a finding, unless one like it is kept already; a certain one goes before an uncertain one.

        One that declared bounds rule out is kept with those: the bounds are reported in its place.
        """
        self._broke = True
        if finding.needed:
            self.bound_dependent.append(finding)
            return
        if finding.site.dedup_key is not None:
            alike = self._kept.setdefault((finding.rule.id, finding.site.dedup_key), [])
            if alike and not _goes_before(finding, alike[0]):
                if not (finding.site.several and self._says_more(finding, alike)):
                    return
            else:
                self.findings = [other for other in self.findings if other not in alike]
                alike.clear()
            alike.append(finding)
        self.findings.append(finding)

    def _says_more(self, finding: Finding, others: Sequence[Finding]) -> bool:
        """True if a finding is the first that is decided, or if guards against the others leave its fault.

        Where one of the others has no guard, no guards are said to be enough.
        """
        if others[0].verdict is Verdict.ALWAYS_INVALID:
            return False
        if finding.reason is None and all(other.reason is not None for other in others):
            return True
        guards = [other.precondition for other in others if other.precondition is not None]
        if len(guards) < len(others) or finding.asked is None:
            return len(guards) == len(others)
        guarded = finding.asked._replace(facts=finding.asked.facts.with_guards(guards))
        return not self.prover.decide(guarded).holds

    def _unless_clean(
        self, key: Hashable | None, point: int, check: Callable[[Asked, int], None], asked: Asked
    ) -> None:
        """Run `check`, unless it was run for an equal key and equal facts and found nothing."""
        if key is None:
            check(asked, point)
            return
        key = (key, self.context.facts.before[point])
        known = self._clean.get(key)
        if known is not None:
            known.repeated += 1
            return
        everything, self.summary, self._broke = self.summary, LintSummary(), False
        check(asked, point)
        found, self.summary = self.summary, everything
        if not self._broke:
            self._clean[key] = _Clean(found)
        self.summary.add(found)

    def _count_repeated(self) -> None:
        """Add the constraints of what was not looked at again."""
        for known in self._clean.values():
            if known.repeated:
                self.summary.add(known.summary, known.repeated)
                known.repeated = 0

    def _instruction(self, instruction: Instruction, point: int) -> None:
        for generate in IN_INSTRUCTIONS[type(instruction)]:
            for site in generate(self.context, instruction):
                self._site(site, point)

    def _site(self, site: Site, point: int) -> None:
        """Ask every rule about one site."""
        rules = self.rulebook.by_site(site.kind)
        if isinstance(site, RelationSite):
            for rule in rules:
                if rule.relation == site.relation and self._on_some_path(site, point):
                    path = self.prover.domains.entry.assuming(self._known(site, point))
                    needed = self.prover.needed_bounds(FALSE, path)
                    self.keep(self.finding(rule, site, point, needed=needed))
        elif isinstance(site, ConstraintSite):
            divisors = self._divisors(site, point)
            for rule in rules:
                if rule.constraint is None:
                    continue
                if rule.needs <= site.quantities.keys():
                    self._constraint(rule, site, point, divisors)
                elif site.unknown is not None:
                    self._undecidable(rule, site, point)

    def _constraint(self, rule: Rule, site: ConstraintSite, point: int, divisors: tuple[Expr, ...]) -> None:
        """Ask a rule's constraint where `divisors` are at least 1."""
        constraint = rule.condition(site.quantities)
        if constraint.as_bool is True:
            self.summary.always_valid += 1
            return
        constraint = constraint.substitute(self.context.facts.definitions)
        before, passes = self.context.facts.before[point], site.passes or ANY_PASS
        asked = PlacedConstraint(constraint, before, site.sized, divisors, passes)
        prover = self.prover.glancing if site.shown_only else self.prover
        proof = prover.decide(asked)
        if proof.holds:
            self.summary.count(proof)
            return
        if passes.counters and not passes.certain and proof.verdict is Verdict.RUNTIME_CHECK:
            return  # some passes are inside, and it depends on data which are executed
        self._broke = True
        broken: list[tuple[ConstraintSite, PlacedConstraint, Proof]] = []
        for resolved in site.resolved:
            placed = self._on_its_path(self._in_part(rule, asked, site, resolved), resolved, point)
            decided = proof if placed is asked else prover.decide(placed)
            if not decided.holds:
                broken.append((self._doubted(resolved, point), placed, decided))
                if not any(_by_certainty(broken[-1])):
                    break
        if broken:
            self._broken(rule, *min(broken, key=_by_certainty), point)

    def _in_part(
        self, rule: Rule, asked: PlacedConstraint, site: ConstraintSite, resolved: ConstraintSite
    ) -> PlacedConstraint:
        """The constraint over the quantities of a site that turns out to be about a part of them."""
        if resolved.quantities == site.quantities:
            return asked
        constraint = rule.condition(resolved.quantities).substitute(self.context.facts.definitions)
        return asked._replace(constraint=constraint)

    def _on_some_path(self, site: Site, point: int) -> bool:
        """False where no path makes the site a fault."""
        return self.context.paths.feasible(site.path, point if site.until is None else site.until)

    def _on_its_path(self, asked: PlacedConstraint, site: ConstraintSite, point: int) -> PlacedConstraint:
        """The constraint where it is known which branches the path takes."""
        known = self._known(site, point)
        if known == asked.facts.guards:
            return asked
        until = point if site.until is None else site.until
        return asked._replace(facts=Facts(known, self.context.facts.before[until].calls))

    def _known(self, site: Site, point: int) -> tuple[Condition, ...]:
        """The conditions that hold where a site is a fault."""
        until = point if site.until is None else site.until
        return self.context.paths.conditions(self.context.paths.whole(site.path, until), until)

    def _broken(
        self, rule: Rule, site: ConstraintSite, asked: PlacedConstraint, decided: Proof, point: int
    ) -> None:
        """Keep the finding of a constraint that does not always hold, unless declared bounds rule it out."""
        prover = self.prover.glancing if site.shown_only else self.prover
        proof, only_empty = prover.explain(asked.constraint, decided)
        if proof.holds:  # proved now that points were looked for, too
            self.summary.count(proof)
            return
        if site.shown_only and proof.verdict is Verdict.RUNTIME_CHECK and proof.counterexample is None:
            self.summary.count(proof)
            return
        if asked.passes.counters and proof.verdict is Verdict.RUNTIME_CHECK:
            proof = self.prover.at_every_shape(asked, proof)
        elif asked.passes.conditions and proof.verdict is Verdict.ALWAYS_INVALID:
            proof, only_empty = self.prover.at_some_shape(asked, proof)
        if site.estimate:
            proof = replace(proof, smallest=False, precondition=None)
        runtime = proof.verdict is Verdict.RUNTIME_CHECK
        if runtime and site.checked is not None and rule.condition(site.quantities) == site.checked:
            proof = replace(proof, guarded=True)
        domain = domain_of(proof)
        needed = () if proof.guarded else self.prover.needed_bounds(asked.constraint, domain)
        within = None if proof.guarded or needed else self.prover.within_bounds(asked.constraint, domain)
        if within is not None:
            smallest = proof.smallest and within.counterexample == proof.counterexample
            proof = replace(proof, counterexample=within.counterexample, smallest=smallest)
        proof = self.prover.with_passes(proof)
        more = {"asked": asked, "proof": proof, "only_empty": only_empty, "needed": needed}
        finding = self.finding(rule, site, point, within_bounds=within is not None, **more)
        self.summary.count(proof, certain=finding.site.uncertainty is None)
        self.keep(finding)

    def _undecidable(self, rule: Rule, site: ConstraintSite, point: int) -> None:
        self._broke = True
        resolved = next((one for one in site.resolved if self._on_some_path(one, point)), None)
        if resolved is not None:
            self.summary.runtime_check += 1
            self.summary.unknown += 1
            self.keep(self.finding(rule, resolved, point, undecidable=True))

    def _divisors(self, site: ConstraintSite, point: int) -> tuple[Expr, ...]:
        """Ask about the divisors of a site's quantities, unless it is inside a kernel; return them.

        The constraints of the site itself are asked where they are at least 1.
        """
        known, sizes = self.context.facts.definitions, site.quantities.values()
        found = evaluated_divisors((size.substitute(known) for size in sizes) if known else sizes)
        for divisor in found if site.passes is None else ():
            key = (divisor, self.context.facts.before[point])
            if key not in self._divided:
                self._divided.add(key)
                self._site(divisor_site(divisor, site), point)
        return found

    def finding(self, rule: Rule, site: Site, point: int, **more: Any) -> Finding:
        """Make a finding of this function; it is not certain where the path that it takes is not."""
        return Finding(context=self.context, rule=rule, site=self._doubted(site, point), point=point, **more)

    def _doubted(self, site: SomeSite, point: int) -> SomeSite:
        """The site, not certain where the path that it takes is not."""
        if site.uncertainty is not None:
            return site
        doubt = self.context.paths.doubt(site.path, point if site.until is None else site.until)
        return site if doubt is None else replace(site, uncertainty=doubt)

    def discharge(self, met: frozenset[Finding]) -> None:
        """Take out findings that every caller rules out: run-time checks that something guards."""
        kept = [finding for finding in self.findings if finding not in met]
        bounded = [finding for finding in self.bound_dependent if finding not in met]
        self.summary.guarded += len(self.findings) - len(kept) + len(self.bound_dependent) - len(bounded)
        self.findings, self.bound_dependent = kept, bounded

    # -- declared bounds -----------------------------------------------------------------------------------

    def report_declared_bounds(self) -> None:
        """Keep one finding for each symbol whose bounds nothing enforces and some constraint needs."""
        rules = [r for r in self.rulebook.by_site("declared-bound") if r.relation == "bound-not-enforced"]
        needed = [(bound, finding) for finding in self.bound_dependent for bound in finding.needed]
        for name in dict.fromkeys(bound.symbol for bound, _ in needed):
            about = [(bound, finding) for bound, finding in needed if bound.symbol == name]
            bounds = sorted(dict.fromkeys(bound for bound, _ in about), key=lambda bound: bound.is_upper)
            dependents = tuple(dict.fromkeys(finding for _, finding in about))
            site, point = _bound_site(bounds, dependents), dependents[0].point
            asked = PlacedConstraint(conjunction(bound.condition for bound in bounds), Facts())
            more = {"asked": asked, "proof": _smallest_told(dependents), "dependents": dependents}
            self.findings += (self.finding(rule, site, point, **more) for rule in rules)


def _by_certainty(broken: tuple[ConstraintSite, PlacedConstraint, Proof]) -> tuple[bool, bool]:
    """Sort what is certain first, then what holds for no shape."""
    site, _, proof = broken
    return site.uncertainty is not None, proof.verdict is not Verdict.ALWAYS_INVALID


def _goes_before(finding: Finding, other: Finding) -> bool:
    """True if a finding is kept in place of one with the same dedup key."""
    if finding.site.uncertainty is not None or other.site.uncertainty is not None:
        return finding.site.uncertainty is None
    never = Verdict.ALWAYS_INVALID
    return finding.site.several and finding.verdict is never and other.verdict is not never

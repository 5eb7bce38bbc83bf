"""Checks one function: every site, every rule that asks there, and its findings."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

from symalloc.analysis.facts import Facts
from symalloc.analysis.regions import Region
from symalloc.linter.diagnostic import LintSummary
from symalloc.linter.function_prover import ANY_PASS, FunctionProver, PlacedConstraint, domain_of
from symalloc.linter.sites.kernels import undecided
from symalloc.linter.sites.site import (
    IN_FUNCTIONS,
    IN_INSTRUCTIONS,
    Finding,
    FunctionContext,
    Site,
    load_sites,
)
from symalloc.linter.sites.storages import absolute_offset, divisor_site, storages_of
from symalloc.program import ir
from symalloc.program.control_flow import PathCondition
from symalloc.program.ir import DeclaredBound, Instruction
from symalloc.program.reading import AS_IS
from symalloc.program.types import DType
from symalloc.prover.domain import Proof, Verdict
from symalloc.rulebook.rule import Rule, Rulebook
from symalloc.size.choice import evaluated_divisors
from symalloc.size.condition import FALSE, Condition, conjunction
from symalloc.size.expr import Expr

load_sites()

Open: TypeAlias = tuple[Rule, PlacedConstraint | None, Proof | None]
"""A rule, its constraint, which does not always hold, and the proof; None where a quantity is not known."""
_DEEPER = "no call that was followed gets there, others may"
_NAMED = 3
_SUBJECTS = ("tensor", "first", "what", "storage", "argument", "callee", "variable")
_REPEATED = (ir.AllocStorage, ir.AllocTensor, ir.AllocFresh, ir.View, ir.CallKernel, ir.CallTIR)
_HEAD = {field.name for field in fields(Instruction)}
_LOOKED_AT: Mapping[type[Instruction], Callable[[Instruction], tuple[Any, ...]]] = {
    kind: attrgetter(*(field.name for field in fields(kind) if field.name not in _HEAD)) for kind in _REPEATED
}
"""The fields of instructions that many others are like: those that a memo key holds."""


class MemoKeys:
    """All that the sites at the instructions of one function look at, as keys of those that fare alike.

    Types and extents count by identity: of equal ones there is mostly one, and to hash them takes long.
    """

    def __init__(self, context: FunctionContext) -> None:
        self.context = context
        self.places: dict[int, Hashable] = {}
        self.handles: dict[ir.Var, Hashable] = {}

    def of(self, made: Instruction) -> Hashable | None:
        """The key of an instruction; None where it is too cheap to check, or too rare."""
        kind: type = type(made)
        if kind not in _LOOKED_AT:
            return None
        more: Hashable = None
        if isinstance(made, ir.AllocTensor):
            more = tuple([self.place(region) for region in storages_of(self.context, made)])
        elif isinstance(made, ir.View):
            more = absolute_offset(self.context, made), made.var in self.context.written_views
        return kind, id(made.var.type), more, *map(self.value, _LOOKED_AT[kind](made))

    def place(self, region: Region) -> Hashable:
        """The key of a storage that tensors lie on."""
        found = self.places.get(region.number)
        if found is None:
            made = region.instruction
            fields = (
                map(self.value, _LOOKED_AT[type(made)](made)) if isinstance(made, ir.AllocStorage) else ()
            )
            found = region.nbytes, self.context.is_known_elsewhere(region), *fields
            self.places[region.number] = found
        return found

    def value(self, value: Any) -> Hashable:
        """The key of the value of a field: of a variable its type, and where it may begin."""
        kind = type(value)
        if kind is ir.Var:
            found = self.handles.get(value)
            if found is None:
                found = self.handles[value] = id(value.type), *self.context.points_to.offsets(value)
            return found
        if kind is tuple and not (value and type(value[0]) is Expr):
            return tuple(map(self.value, value))
        return id(value) if kind in (tuple, DType) else value


class FunctionCheck:
    """Finds the faults of one function.

    `findings` are in no order; `bound_dependent` are those that declared bounds rule out.  Instructions and
    sites of equal structure and equal facts fare alike: an instruction that was clean is not looked at again,
    and a site asks nothing that one like it has asked.
    """

    def __init__(self, context: FunctionContext, rulebook: Rulebook) -> None:
        self.context, self.rulebook, self.prover = context, rulebook, context.prover
        self.summary = LintSummary(functions=1)
        self.bound_dependent: list[Finding] = []
        self._kept: dict[object, list[Finding]] = {}
        self._clean: dict[Hashable, LintSummary] = {}
        self._asked: dict[Hashable, tuple[list[Open], LintSummary]] = {}
        self._judged: dict[Hashable, Mapping[str, Any] | Proof] = {}
        self._divided: set[tuple[Expr, Facts]] = set()
        self._broke = False

    @property
    def findings(self) -> list[Finding]:
        """The findings that are kept."""
        return [finding for alike in self._kept.values() for finding in alike]

    def run(self, *, expanded: FunctionCheck | None = None) -> None:
        """Check all sites.

        Those that ask in what order memory is written and read are asked in `expanded`, the check of the
        function with its calls written out, if there is one; and nowhere if it is written out in all that
        call it.
        """
        if expanded is not None:
            expanded.memory_order()
            for finding in expanded.findings:
                self.keep(finding)
            self.bound_dependent += expanded.bound_dependent
            self.summary.add(replace(expanded.summary, functions=0))
        elif self.context.function.name not in self.context.shared.seen_in_callers:
            self.memory_order()
        self._in_functions(expanded=False)
        asked: Sequence[tuple[int, Instruction]] = self.context.analysis.cfg.of_type(*IN_INSTRUCTIONS)
        keys = MemoKeys(self.context)
        for point, instruction in asked:
            self._unless_clean(keys.of(instruction), point, instruction)

    def memory_order(self) -> None:
        """Check the sites that ask in what order memory is written and read."""
        self._in_functions(expanded=True)
        if self.context.function.name in self.context.shared.seen_in_part:
            self._kept = {key: [one.doubted(_DEEPER) for one in alike] for key, alike in self._kept.items()}

    def _in_functions(self, *, expanded: bool) -> None:
        for generator in IN_FUNCTIONS:
            by_site = map(self.rulebook.by_site.__getitem__, generator.kinds)
            if generator.expanded is expanded and any(by_site):
                for point, site in generator.generate(self.context):
                    self._site(site, point)

    def keep(self, finding: Finding) -> None:
        """Keep a finding, unless one like it is kept already; a certain one goes before an uncertain one.

        One that declared bounds rule out is kept with those: the bounds are reported in its place.  Where the
        rule would keep silent, nothing needs the bounds.
        """
        self._broke = True
        if finding.needed:
            if finding.severity is not None:
                self.bound_dependent.append(finding)
            return
        site = finding.site
        key = object() if site.dedup_key is None else (finding.rule.id, site.dedup_key)
        alike = self._kept.get(key, ())
        if not alike or _goes_before(finding, alike[0]):
            self._kept.pop(key, None)
            self._kept[key] = [finding]
        elif site.several and self._says_more(finding, alike):
            self._kept[key].append(finding)

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

    def _unless_clean(self, key: Hashable | None, point: int, instruction: Instruction) -> None:
        """Check an instruction, unless one with an equal key and equal facts was clean."""
        key = key and (key, self.context.facts.before[point])
        found = self._clean.get(key) if key else None
        if found is None:
            everything, self.summary, self._broke = self.summary, LintSummary(), False
            for generate in IN_INSTRUCTIONS[type(instruction)]:
                for site in generate(self.context, instruction):
                    self._site(site, point)
            found, self.summary = self.summary, everything
            if key and not self._broke:
                self._clean[key] = found
        self.summary.add(found)

    def _site(self, site: Site, point: int) -> None:
        """Ask every rule about one site."""
        rules = [rule for rule in self.rulebook.by_site[site.kind] if rule.relation == site.relation]
        if site.relation is not None:
            for rule in rules:
                if self.context.paths.feasible(*_place(site, point)):
                    needed = self.prover.needed_bounds(
                        FALSE, self.prover.entry.assuming(self._known(site, point))
                    )
                    self.keep(self.finding(rule, site, point, needed=needed))
            return
        key = site.memo_key, self.context.facts.before[point]
        if key not in self._asked:
            everything, self.summary = self.summary, LintSummary()
            self._asked[key] = [*self._left_open(site, rules, point)], self.summary
            self.summary = everything
        left, counted = self._asked[key]
        self.summary.add(counted)
        for rule, asked, proof in left:
            self._broke = True
            if asked is None or proof is None:
                self._undecidable(rule, site, point)
            else:
                self._resolve(rule, site, asked, proof, point)

    def _left_open(self, site: Site, rules: Sequence[Rule], point: int) -> Iterator[Open]:
        """Yield the rules whose constraints do not hold at a site, or lack a quantity; count the others.

        They are asked where the divisors of the quantities are at least 1.
        """
        divisors, known = self._divisors(site, point), self.context.facts
        passes = site.passes or ANY_PASS
        for rule in rules:
            if not rule.needs <= site.quantities.keys():
                yield from () if site.unknown is None else ((rule, None, None),)
                continue
            constraint = rule.condition(site.quantities)
            if constraint.as_bool is True:
                self.summary.always_valid += 1
                continue
            constraint = constraint.substitute(known.definitions)
            asked = PlacedConstraint(constraint, known.before[point], site.sized, divisors, passes)
            proof = self._prover_of(site).decide(asked)
            if proof.holds:
                self.summary.count(proof)
            elif passes.certain or not passes.counters or proof.verdict is not Verdict.RUNTIME_CHECK:
                yield rule, asked, proof  # else some passes are inside, and data decides which are executed

    def _prover_of(self, site: Site) -> FunctionProver:
        return self.prover.glancing if site.shown_only else self.prover

    def _resolve(self, rule: Rule, site: Site, asked: PlacedConstraint, proof: Proof, point: int) -> None:
        """Keep the worst of what a site is on the branches on which its constraint does not hold."""
        broken: list[tuple[Site, PlacedConstraint, Proof]] = []
        for resolved in site.resolved:
            placed = self._placed(rule, asked, site, resolved, point)
            decided = proof if placed is asked else self._prover_of(site).decide(placed)
            if not decided.holds:
                broken.append((self._doubted(resolved, point), placed, decided))
                if not any(_by_certainty(broken[-1])):
                    break
        if broken:
            self._broken(rule, *min(broken, key=_by_certainty), point)

    def _placed(
        self, rule: Rule, asked: PlacedConstraint, site: Site, resolved: Site, point: int
    ) -> PlacedConstraint:
        """The constraint over the quantities of the `resolved` site, where it is known which branches its
        path takes.
        """
        if (resolved.quantities, resolved.passes) != (site.quantities, site.passes):
            constraint = rule.condition(resolved.quantities).substitute(self.context.facts.definitions)
            asked = asked._replace(constraint=constraint, passes=resolved.passes or asked.passes)
        known, (_, until) = self._known(resolved, point), _place(resolved, point)
        if known == asked.facts.guards:
            return asked
        return asked._replace(facts=Facts(known, self.context.facts.before[until].calls))

    def _known(self, site: Site, point: int) -> tuple[Condition, ...]:
        """The conditions that hold where a site is a fault."""
        path, until = _place(site, point)
        return self.context.paths.conditions(self.context.paths.whole(path, until), until)

    def _broken(self, rule: Rule, site: Site, asked: PlacedConstraint, decided: Proof, point: int) -> None:
        """Keep the finding of a constraint that does not always hold, unless declared bounds rule it out."""
        checked = site.checked is not None and rule.condition(site.quantities) == site.checked
        key = asked, site.shown_only, site.idle, site.estimate, site.promised, site.passes is None, checked
        judged = self._judged.get(key)
        if judged is None:
            judged = self._judged[key] = self._judgement(site, asked, decided, checked=checked)
        if not isinstance(judged, Proof):
            finding = self.finding(rule, site, point, **judged)
            self.summary.count(judged["proof"], certain=finding.site.uncertainty is None)
            self.keep(finding)
            return
        self.summary.count(judged)
        if not judged.holds:
            self._site(undecided(site), point)

    def _judgement(
        self, site: Site, asked: PlacedConstraint, decided: Proof, *, checked: bool
    ) -> Mapping[str, Any] | Proof:
        """The fields of the finding; the proof where there is none."""
        proof, only_empty = self._prover_of(site).explain(asked, decided, numbers=site.idle)
        shown = proof.verdict is not Verdict.RUNTIME_CHECK or proof.counterexample is not None
        if proof.holds or not (shown or site.passes is None):  # proved now that points were looked for, too
            return proof
        if site.estimate:
            proof = replace(proof, smallest=False, precondition=None)
        if checked and proof.verdict is Verdict.RUNTIME_CHECK:
            proof = replace(proof, guarded=True)
        over = domain_of(proof)
        needed = () if proof.guarded or site.promised else self.prover.needed_bounds(asked.constraint, over)
        within = None if proof.guarded or needed else self.prover.within_bounds(asked.constraint, over)
        if within is not None:
            smallest = proof.smallest and within.counterexample == proof.counterexample
            proof = replace(proof, counterexample=within.counterexample, smallest=smallest)
        proof = self.prover.completed(proof, asked.constraint)
        told = {"asked": asked, "proof": proof, "only_empty": only_empty, "needed": needed}
        return told | {"within_bounds": within is not None}

    def _undecidable(self, rule: Rule, site: Site, point: int) -> None:
        self._broke = True
        feasible = (one for one in site.resolved if self.context.paths.feasible(*_place(one, point)))
        for resolved in islice(feasible, 1):
            self.summary.runtime_check += 1
            self.summary.unknown += 1
            self.keep(self.finding(rule, resolved, point, undecidable=True))

    def _divisors(self, site: Site, point: int) -> tuple[Expr, ...]:
        """Ask about the divisors of a site's quantities, unless it is inside a kernel; return them.

        The constraints of the site itself are asked where they are at least 1.
        """
        known, sizes = self.context.facts.definitions, site.quantities.values()
        found = evaluated_divisors((size.substitute(known) for size in sizes) if known else sizes)
        for divisor in found if site.passes is None else ():
            key = (divisor, self.context.facts.before[point])
            if key not in self._divided:
                self._divided.add(key)
                made = site.instruction or self.context.instruction(point)
                self._site(divisor_site(divisor, site, made), point)
        return found

    def finding(self, rule: Rule, site: Site, point: int, **more: Any) -> Finding:
        """Make a finding of this function; it is not certain where the path that it takes is not."""
        return Finding(context=self.context, rule=rule, site=self._doubted(site, point), point=point, **more)

    def _doubted(self, site: Site, point: int) -> Site:
        """The site, not certain where the path that it takes is not."""
        doubt = None if site.uncertainty is not None else self.context.paths.doubt(*_place(site, point))
        return site if doubt is None else replace(site, uncertainty=doubt)

    def discharge(self, met: frozenset[Finding]) -> None:
        """Take out findings that every caller rules out: run-time checks that something guards."""
        everything = len(self.findings) + len(self.bound_dependent)
        self._kept = {key: [one for one in alike if one not in met] for key, alike in self._kept.items()}
        self.bound_dependent = [one for one in self.bound_dependent if one not in met]
        self.summary.guarded += everything - len(self.findings) - len(self.bound_dependent)

    # -- declared bounds -----------------------------------------------------------------------------------

    def report_declared_bounds(self) -> None:
        """Keep one finding for each symbol whose bounds nothing enforces and some constraint needs."""
        rules = [r for r in self.rulebook.by_site["declared-bound"] if r.relation == "bound-not-enforced"]
        needed = [(bound, finding) for finding in self.bound_dependent for bound in finding.needed]
        for name in dict.fromkeys(bound.symbol for bound, _ in needed):
            about = [(bound, finding) for bound, finding in needed if bound.symbol == name]
            bounds = sorted(dict.fromkeys(bound for bound, _ in about), key=lambda bound: bound.is_upper)
            dependents = tuple(dict.fromkeys(finding for _, finding in about))
            site, point = _bound_site(bounds, dependents), dependents[0].point
            asked = PlacedConstraint(conjunction(bound.condition for bound in bounds), Facts())
            more = {"asked": asked, "proof": _smallest_told(dependents), "dependents": dependents}
            for rule in rules:
                self.keep(self.finding(rule, site, point, **more))


def _bound_site(bounds: Sequence[DeclaredBound], dependents: Sequence[Finding]) -> Site:
    """The site of the bounds of one symbol, where the first of `dependents` stands."""
    first, count, stage = dependents[0], len(dependents), dependents[0].context.program.stage
    texts = {
        "symbol": bounds[0].symbol,
        "declared": " and ".join(bound.text for bound in bounds),
        "check": str(conjunction(bound.condition for bound in bounds)),
        "count": "1 constraint needs" if count == 1 else f"{count} constraints need",
        "needed_by": _listed(f.site for f in dependents) if stage == AS_IS else f"after {stage}",
    }
    return Site(
        kind="declared-bound",
        instruction=first.site.instruction,
        span=first.site.span,
        relation="bound-not-enforced",
        texts=texts,
    )


def _smallest_told(dependents: Iterable[Finding]) -> Proof | None:
    """The proof with the least counterexample, of those that depend on the shapes."""
    told = (f for f in dependents if f.verdict is Verdict.RUNTIME_CHECK)
    order = sorted(told, key=lambda f: sorted((f.counterexample or {"": 2**64}).values())[::-1])
    return order[0].proof if order else None


def _listed(sites: Iterable[Site]) -> str:
    """The names of sites in a message: `a`, `b`, `c` and 3 more."""
    subjects = (next((s.texts[key] for key in _SUBJECTS if key in s.texts), s.kind) for s in sites)
    names = [f"`{name}`" for name in dict.fromkeys(subjects)]
    shown = [*names[:_NAMED], *([f"{len(names) - _NAMED} more"] if len(names) > _NAMED else ())]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _place(site: Site, point: int) -> tuple[PathCondition, int]:
    """The branches on which a site is a fault, and the point that must be got to."""
    return site.path, point if site.until is None else site.until


def _by_certainty(broken: tuple[Site, PlacedConstraint, Proof]) -> tuple[bool, bool]:
    """Sort what is certain first, then what holds for no shape."""
    site, _, proof = broken
    return site.uncertainty is not None, proof.verdict is not Verdict.ALWAYS_INVALID


def _goes_before(finding: Finding, other: Finding) -> bool:
    """True if a finding is kept in place of one with the same dedup key."""
    if finding.site.uncertainty is not None or other.site.uncertainty is not None:
        return finding.site.uncertainty is None
    never = Verdict.ALWAYS_INVALID
    return finding.site.several and finding.verdict is never and other.verdict is not never

"""Checks one function: every site, every rule that asks there, and the findings and diagnostics of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

from symalloc.analysis.facts import Facts
from symalloc.analysis.paths import PathCondition
from symalloc.analysis.regions import Region
from symalloc.linter.diagnostic import Dependent, Diagnostic, Label, LintSummary, Severity
from symalloc.linter.function_prover import ANY_PASS, FunctionProver, PlacedConstraint, domain_of
from symalloc.linter.sites.kernels import undecided
from symalloc.linter.sites.site import IN_FUNCTIONS, IN_INSTRUCTIONS, FunctionContext, Site, load_sites
from symalloc.linter.sites.storages import absolute_offset, divisor_site, storages_of
from symalloc.program import ir
from symalloc.program.ir import CallFunction, DeclaredBound, Instruction
from symalloc.program.reading import AS_IS
from symalloc.program.span import Span
from symalloc.program.types import DType
from symalloc.prover.verdict import Proof, Verdict
from symalloc.rulebook.book import Rulebook
from symalloc.rulebook.rule import Rule, Value
from symalloc.size.condition import FALSE, Condition, conjunction
from symalloc.size.defined import evaluated_divisors
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finding:
    """One finding, at the program point `point` of a function; equal only to itself.

    `asked` is the constraint that fails, and `proof` says how; both are None for a relation.  `only_empty`:
    no shape without an empty tensor breaks it.  `undecidable`: a quantity of the constraint is not known.
    `cause` is the finding in a callee that this one of a call comes from.  `further_calls` lead to the same
    fault from elsewhere.  `within_bounds`: the counterexample keeps to the declared bounds of the function.
    `needed` are declared bounds that rule it out; with fewer of them it may be a fault.  `dependents` are the
    findings that a declared bound rules out, where this is about one.
    """

    context: FunctionContext
    rule: Rule
    site: Site
    point: int
    asked: PlacedConstraint | None = None
    proof: Proof | None = None
    only_empty: bool = False
    undecidable: bool = False
    cause: Finding | None = None
    further_calls: tuple[CallFunction, ...] = ()
    within_bounds: bool = False
    needed: tuple[DeclaredBound, ...] = ()
    dependents: tuple[Finding, ...] = ()

    @property
    def instruction(self) -> Instruction | None:
        """The instruction at which the finding stands; None for the result of the function."""
        return self.site.instruction or self.context.instruction(self.point)

    @property
    def where(self) -> Span | None:
        """The span to point at."""
        made = self.instruction
        return self.site.span or (self.context.function.result_span if made is None else made.span)

    @property
    def original(self) -> Instruction | None:
        """The instruction of the program at which the finding stands."""
        made, expansion = self.instruction, self.context.expansion
        return made if expansion is None or made is None else expansion.original(made)

    @property
    def calls(self) -> tuple[CallFunction, ...]:
        """The calls, outermost first, that lead to it from the function in which it was found."""
        expansion = self.context.expansion
        return () if expansion is None else expansion.calls_to(self.instruction)

    @property
    def guarded(self) -> bool:
        """True where the program itself stops at a check before the fault."""
        return self.proof is not None and self.proof.guarded

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the constraint, never a definite one at an uncertain site; None for a relation."""
        if self.site.uncertainty is not None or self.undecidable:
            return Verdict.RUNTIME_CHECK
        return None if self.proof is None else self.proof.verdict

    @property
    def reason(self) -> str | None:
        """Why nothing definite can be said."""
        if self.site.uncertainty is not None:
            return self.site.uncertainty
        if self.proof is None:
            return self.site.unknown if self.undecidable else None
        return self.proof.reason if self.proof.unknown else None

    @property
    def counterexample(self) -> dict[str, int] | None:
        """A binding that breaks the constraint, empty where every one does; None where none is known."""
        point = None if self.proof is None else self.proof.counterexample
        found = {n: v for n, v in (point or {}).items() if n in self.context.function.symbols}  # no tests
        return found if found or point == {} else None

    @property
    def precondition(self) -> Condition | None:
        """A condition under which the constraint holds, where some shapes satisfy it."""
        if self.proof is None or self.proof.verdict is not Verdict.RUNTIME_CHECK:
            return None
        found = self.proof.precondition
        return found if found is None or found.symbols <= self.context.function.symbols.keys() else None

    @property
    def severity(self) -> Severity | None:
        """The severity; None where the rule keeps silent about such a verdict.

        What is not certain to be a fault (an uncertain alias, a constraint that could not be decided and has
        no counterexample) is no error; where a size is not even known it is a note, but for a site of
        `doubt`.  A call that may break what its callee needs is no worse than that need is there.
        """
        rule, proof = self.rule, self.proof
        if self.verdict is not Verdict.RUNTIME_CHECK:
            return Severity(rule.severity)
        if rule.severity_at_runtime is None:
            return None
        empty = self.only_empty and rule.severity_when_empty
        severity = Severity(empty or rule.severity_at_runtime)
        if proof is None:
            noted = self.undecidable and not self.site.doubt
            return Severity.NOTE if noted else _milder(severity, Severity.WARNING)
        if self.site.uncertainty is not None or (proof.unknown and self.counterexample is None):
            severity = _milder(severity, Severity.WARNING)
        cause = self.cause.severity if self.cause is not None else None
        return severity if cause is None else _milder(severity, cause)

    def doubted(self, why: str) -> Finding:
        """The finding, no longer certain, so that it is no error."""
        if self.site.uncertainty is not None or self.severity is not Severity.ERROR:
            return self
        return replace(self, site=replace(self.site, uncertainty=why))

    @property
    def diagnostic(self) -> Diagnostic | None:
        """The diagnostic; None where the rule has nothing to say of such a verdict."""
        severity = self.severity
        if severity is None:
            return None
        values = self._values()
        rule, result = self.rule, values.get("consequence")
        return Diagnostic(
            rule=rule.id,
            name=rule.name,
            severity=severity,
            verdict=self.verdict,
            message=self._message(values),
            module=self.context.program.name,
            function=self.context.function.name,
            span=self.where,
            label="".join(rule.rendered((rule.label,), values)),
            labels=self._labels(values),
            path=self.context.paths.text(self.site.path),
            counterexample=self.counterexample,
            smallest=self.proof is not None and self.proof.smallest,
            consequence=None if result is None else str(result),
            precondition=None if self.precondition is None else str(self.precondition),
            reason=self.reason,
            notes=tuple(self._notes(values)),
            help=rule.help_about(values),
            guarded=self.guarded,
            constraint=None if self.asked is None else str(self.asked.constraint),
            binds="" if self.instruction is None else self.instruction.var.name,
            dependents=tuple(finding.dependent for finding in self.dependents),
        )

    @property
    def dependent(self) -> Dependent:
        """The finding as one that another finding is about."""
        what, name = self.asked and str(self.asked.constraint), self.context.function.name
        return Dependent(rule=self.rule.id, constraint=what, span=self.where, function=name)

    def _values(self) -> dict[str, Value]:
        """The values of names in the rule's templates."""
        site, point, proof = self.site, self.counterexample, self.proof
        values: dict[str, Value] = {**site.quantities, **site.texts, "function": self.context.function.name}
        values |= {"reason": self.reason, "counterexample": point, "precondition": self.precondition}
        if point is not None and self.rule.compiled is not None:
            known = {n: e.substitute(self.context.facts.definitions) for n, e in site.quantities.items()}
            values["consequence"] = self.rule.compiled.consequence(known, point)
        if site.lazy_texts is not None and proof is not None and proof.domain is not None:
            values.update(site.lazy_texts(self.context.prover.prover, proof.domain))
        return values

    def _message(self, values: Mapping[str, Value]) -> str:
        never = self.verdict is Verdict.ALWAYS_INVALID
        message = self.rule.message_about(values, never_holds=never)
        if message is not None:
            return message
        texts = self.site.texts
        subjects = (texts[n] for n in ("tensor", "first", "second", "argument") if n in texts)
        names = " and ".join(f"`{subject}`" for subject in dict.fromkeys(subjects))
        return f"cannot be decided: {self.rule.name}{f' of {names}' if names else ''}"

    def _labels(self, values: Mapping[str, Value]) -> tuple[Label, ...]:
        labels = []
        for place, span in self.site.places.items():
            template = self.rule.labels.get(place)
            if template is not None and span != self.where:
                labels += [Label(span=span, text=text) for text in self.rule.rendered((template,), values)]
        for call in (*self.calls, *self.further_calls):
            if call.span is not None:
                labels.append(Label(span=call.span, text=f"`{call.name}` is called here"))
        return tuple(dict.fromkeys(labels))

    def _notes(self, values: Mapping[str, Value]) -> Iterator[str]:
        yield from self.rule.rendered(self.rule.notes, values)
        if self.within_bounds and self.counterexample:
            yield "the counterexample keeps to the declared bounds"
        proof = self.proof
        if proof is not None and proof.verdict is Verdict.ALWAYS_INVALID and proof.witness:
            point = ", ".join(f"{name} = {value}" for name, value in proof.witness.items())
            when = "only an empty shape satisfies it" if self.site.passes is None else "no pass gets there at"
            yield f"{when}: {point}"


def _milder(left: Severity, right: Severity) -> Severity:
    return max(left, right, key=lambda severity: severity.rank)


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
            return id(value.type), *self.context.points_to.offsets(value)
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
            if generator.expanded is expanded and any(map(self.rulebook.by_site, generator.kinds)):
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
        rules = [rule for rule in self.rulebook.by_site(site.kind) if rule.relation == site.relation]
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
        if key not in self._judged:
            self._judged[key] = self._judgement(site, asked, decided, checked=checked)
        judged = self._judged[key]
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
        rules = [r for r in self.rulebook.by_site("declared-bound") if r.relation == "bound-not-enforced"]
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

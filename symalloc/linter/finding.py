"""A finding: what is wrong at one place of a function, how certain that is, and its diagnostic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from symalloc.linter.diagnostic import Dependent, Diagnostic, Label, Severity
from symalloc.linter.function_prover import PlacedConstraint
from symalloc.linter.sites.site import FunctionContext, Site
from symalloc.program.ir import CallFunction, DeclaredBound, Instruction
from symalloc.program.span import Span
from symalloc.prover.domain import Proof, Verdict
from symalloc.rulebook.rule import Rule, Value
from symalloc.size.condition import Condition


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

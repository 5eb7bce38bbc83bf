"""A finding in the making: the site, the rule, the verdict; and the diagnostic that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symalloc.analysis.facts import Facts
from symalloc.linter.consequence import consequence
from symalloc.linter.diagnostic import Diagnostic, Label, Severity
from symalloc.linter.judge import Judgement
from symalloc.linter.sites.site import Scene, Site
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.rulebook.rule import Rule
from symalloc.rulebook.template import MissingValueError, Value
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr

__all__ = ["Finding", "severity_of"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finding:
    """One finding; equal only to itself.

    `constraint` is what fails over `domain`, where `facts` are known and `divisors` at least 1; all are None
    for a relation.
    `judgement` explains it.  `guarded`: the program itself checks it right there.  `cause` is the finding of
    a callee that this one of a call comes from.
    """

    rule: Rule
    site: Site
    step: int
    function: str
    facts: Facts | None = None
    constraint: Condition | None = None
    domain: Domain | None = None
    judgement: Judgement | None = None
    guarded: bool = False
    unknown: bool = False
    cause: Finding | None = None
    divisors: tuple[Expr, ...] = ()

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on a constraint; a doubtful site gets no definite one.  None for a relation."""
        if self.site.doubt is not None or self.unknown:
            return Verdict.RUNTIME_CHECK
        return None if self.judgement is None else self.judgement.verdict

    @property
    def reason(self) -> str | None:
        """Why nothing definite can be said."""
        if self.site.doubt is not None or self.judgement is None:
            return self.site.doubt or (self.site.unknown if self.unknown else None)
        return self.judgement.proof.reason if self.judgement.proof.unknown else None

    def diagnostic(self, scene: Scene, prover: Prover) -> Diagnostic | None:
        """The diagnostic; None where the rule has nothing to say of such a verdict."""
        severity = severity_of(self)
        if severity is None:
            return None
        values = self._values(scene, prover)
        rule, judgement, site = self.rule, self.judgement, self.site
        precondition, result = values.get("precondition"), values.get("consequence")
        return Diagnostic(
            rule=rule.id,
            name=rule.name,
            severity=severity,
            verdict=self.verdict,
            message=self._message(values),
            module=scene.program.name,
            function=self.function,
            span=self.site.where,
            label=_rendered(rule, rule.label, values) or "",
            labels=self._labels(values),
            counterexample=None if judgement is None else judgement.counterexample,
            consequence=None if result is None else str(result),
            precondition=None if precondition is None else str(precondition),
            reason=self.reason,
            notes=(*rule.render_notes(values), *self._empty_note()),
            help=rule.render_help(values),
            guarded=self.guarded,
            constraint=None if self.constraint is None else str(self.constraint),
            binds="" if site.instruction is None else site.instruction.var.name,
        )

    def _values(self, scene: Scene, prover: Prover) -> dict[str, Value]:
        """What the rule's templates may use."""
        site, judgement = self.site, self.judgement
        values: dict[str, Value] = {**site.quantities, **site.texts, "function": self.function}
        values["reason"] = self.reason
        if judgement is None:
            return values
        values["counterexample"] = judgement.counterexample
        if judgement.verdict is Verdict.RUNTIME_CHECK:
            values["precondition"] = judgement.proof.precondition
        if judgement.counterexample is not None and self.rule.constraint is not None:
            known = {n: e.substitute(scene.facts.definitions) for n, e in site.quantities.items()}
            point = judgement.counterexample
            values["consequence"] = consequence(self.rule.constraint, site.kind, known, point)
        if site.later is not None and self.domain is not None:
            values.update(site.later(prover, self.domain))
        return values

    def _message(self, values: Mapping[str, Value]) -> str:
        never = self.verdict is Verdict.ALWAYS_INVALID
        try:
            return self.rule.render_message(values, never_holds=never)
        except MissingValueError:
            names = " and ".join(f"`{n}`" for n in dict.fromkeys(_subjects(self.site)))
            about = f" of {names}" if names else ""
            return f"cannot be decided: {self.rule.name}{about}"

    def _labels(self, values: Mapping[str, Value]) -> tuple[Label, ...]:
        texts, places = self.rule.render_labels(values), self.site.places
        main = self.site.where
        spans = {place: span for place, span in places.items() if place in texts and span != main}
        return tuple(Label(span=span, text=texts[place]) for place, span in spans.items())

    def _empty_note(self) -> tuple[str, ...]:
        empty = self.judgement.empty if self.judgement is not None else None
        if not empty:
            return ()
        return (f"only an empty shape satisfies it: {', '.join(f'{n} = {v}' for n, v in empty.items())}",)


def severity_of(finding: Finding) -> Severity | None:
    """How bad a finding is; None where the rule keeps silent about such a verdict.

    What is not certain to be a fault (a doubtful alias, a constraint that could not be decided and has no
    counterexample) is no error; where a size is not even known it is a note.  A call that may break what its
    callee needs is no worse than that need is there.
    """
    rule = finding.rule
    if finding.verdict is not Verdict.RUNTIME_CHECK:
        return Severity(rule.severity)
    if rule.severity_at_runtime is None:
        return None
    judged = finding.judgement
    if judged is None:
        return Severity.NOTE
    severity = Severity(rule.severity_at_runtime)
    if judged.needs_empty and rule.severity_when_empty is not None:
        severity = Severity(rule.severity_when_empty)
    undecided = judged.proof.unknown and judged.counterexample is None
    if finding.site.doubt is not None or undecided:
        severity = _milder(severity, Severity.WARNING)
    cause = severity_of(finding.cause) if finding.cause is not None else None
    return severity if cause is None else _milder(severity, cause)


def _milder(left: Severity, right: Severity) -> Severity:
    return max(left, right, key=lambda severity: severity.rank)


def _rendered(rule: Rule, template: str, values: Mapping[str, Value]) -> str | None:
    try:
        return rule.render(template, values)
    except MissingValueError:
        return None


def _subjects(site: Site) -> list[str]:
    return [site.texts[name] for name in ("tensor", "first", "second", "argument") if name in site.texts]

"""A finding: a rule that a site breaks, with the proof; and the diagnostic that it becomes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from symalloc.linter.diagnostic import Dependent, Diagnostic, Label, Severity
from symalloc.linter.function_prover import PlacedConstraint
from symalloc.linter.sites.site import FunctionContext, Site
from symalloc.program.ir import CallFunction, DeclaredBound, Instruction
from symalloc.prover.verdict import Proof, Verdict
from symalloc.rulebook.language import Clause, Clauses, Comparison, Quantity, Unit
from symalloc.rulebook.rule import Rule
from symalloc.rulebook.template import MissingValueError, Value
from symalloc.size.condition import Condition
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
    def original(self) -> Instruction | None:
        """The instruction of the program at which the finding stands."""
        made, expansion = self.site.instruction, self.context.expansion
        return made if expansion is None or made is None else expansion.original(made)

    @property
    def calls(self) -> tuple[CallFunction, ...]:
        """The calls, outermost first, that lead to it from the function in which it was found."""
        expansion = self.context.expansion
        return () if expansion is None else expansion.calls_to(self.site.instruction)

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
        """A binding that breaks the constraint; None where it has no symbols."""
        point = None if self.proof is None else self.proof.counterexample
        known = self.context.function.symbols  # the others stand for what Ifs test
        return {name: value for name, value in point.items() if name in known} or None if point else None

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
        undecided = proof.unknown and self.counterexample is None
        if undecided and self.site.passes is not None:
            return Severity.NOTE  # what kernels compute is harder than sizes, and mostly TVM's own
        if self.site.uncertainty is not None or undecided:
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
        rule, site, result = self.rule, self.site, values.get("consequence")
        return Diagnostic(
            rule=rule.id,
            name=rule.name,
            severity=severity,
            verdict=self.verdict,
            message=self._message(values),
            module=self.context.program.name,
            function=self.context.function.name,
            span=site.where,
            label=rule.render_label(values),
            labels=self._labels(values),
            path=self.context.paths.text(self.site.path),
            counterexample=self.counterexample,
            smallest=self.proof is not None and self.proof.smallest,
            consequence=None if result is None else str(result),
            precondition=None if self.precondition is None else str(self.precondition),
            reason=self.reason,
            notes=(
                *rule.render_notes(values),
                *self._bounds_note(),
                *self._empty_note(),
            ),
            help=rule.render_help(values),
            guarded=self.guarded,
            constraint=None if self.asked is None else str(self.asked.constraint),
            binds="" if site.instruction is None else site.instruction.var.name,
            dependents=tuple(finding.dependent for finding in self.dependents),
        )

    @property
    def dependent(self) -> Dependent:
        """The finding as one that another finding is about."""
        constraint = None if self.asked is None else str(self.asked.constraint)
        return Dependent(rule=self.rule.id, constraint=constraint, span=self.site.where)

    def _values(self) -> dict[str, Value]:
        """The values of names in the rule's templates."""
        site, point, proof = self.site, self.counterexample, self.proof
        values: dict[str, Value] = {**site.quantities, **site.texts, "function": self.context.function.name}
        values |= {"reason": self.reason, "counterexample": point, "precondition": self.precondition}
        if point is not None and self.rule.clauses is not None:
            known = {n: e.substitute(self.context.facts.definitions) for n, e in site.quantities.items()}
            values["consequence"] = consequence(self.rule.clauses, known, point)
        if site.lazy_texts is not None and proof is not None and proof.domain is not None:
            values.update(site.lazy_texts(self.context.prover.prover, proof.domain))
        return values

    def _message(self, values: Mapping[str, Value]) -> str:
        never = self.verdict is Verdict.ALWAYS_INVALID
        try:
            return self.rule.render_message(values, never_holds=never)
        except MissingValueError:
            texts = self.site.texts
            subjects = (texts[n] for n in ("tensor", "first", "second", "argument") if n in texts)
            names = " and ".join(f"`{subject}`" for subject in dict.fromkeys(subjects))
            about = f" of {names}" if names else ""
            return f"cannot be decided: {self.rule.name}{about}"

    def _labels(self, values: Mapping[str, Value]) -> tuple[Label, ...]:
        texts, main = self.rule.render_labels(values), self.site.where
        spans = {place: span for place, span in self.site.places.items() if place in texts and span != main}
        labels = [Label(span=span, text=texts[place]) for place, span in spans.items()]
        for call in (*self.calls, *self.further_calls):
            if call.span is not None:
                labels.append(Label(span=call.span, text=f"`{call.name}` is called here"))
        return tuple(dict.fromkeys(labels))

    def _bounds_note(self) -> tuple[str, ...]:
        if not self.within_bounds or not self.counterexample:
            return ()
        return ("the counterexample keeps to the declared bounds",)

    def _empty_note(self) -> tuple[str, ...]:
        proof = self.proof
        if proof is None or proof.verdict is not Verdict.ALWAYS_INVALID or not proof.witness:
            return ()
        point = ", ".join(f"{name} = {value}" for name, value in proof.witness.items())
        return (f"only an empty shape satisfies it: {point}",)


def _milder(left: Severity, right: Severity) -> Severity:
    return max(left, right, key=lambda severity: severity.rank)


_MEANING: dict[str, tuple[Callable[[int, int], bool], str]] = {  # and the comparison that holds instead
    "<=": (operator.le, ">"),
    "<": (operator.lt, ">="),
    ">=": (operator.ge, "<"),
    ">": (operator.gt, "<="),
    "==": (operator.eq, "!="),
    "!=": (operator.ne, "=="),
}


def consequence(clause: Clause, quantities: Mapping[str, Expr], point: Mapping[str, int]) -> str | None:
    """Both sides of `clause` at `point`, with the comparison that holds instead.

    None where a quantity has no value there, or the clause holds.
    """
    try:
        return _broken(clause, quantities, point)
    except (KeyError, ZeroDivisionError):
        return None


def _broken(clause: Clause, quantities: Mapping[str, Expr], point: Mapping[str, int]) -> str | None:
    if isinstance(clause, Comparison):
        return _compared(clause, quantities, point)
    if clause.every:
        found = (_broken(part, quantities, point) for part in clause.parts)
        return next((text for text in found if text is not None), None)
    telling = [part for part in clause.parts if not _tests_zero(part)] or clause.parts
    texts = [_broken(part, quantities, point) for part in telling]
    return None if None in texts else " and ".join(text for text in texts if text is not None)


def _compared(clause: Comparison, quantities: Mapping[str, Expr], point: Mapping[str, int]) -> str | None:
    a, b = (_value(side, quantities, point) for side in (clause.left, clause.right))
    holds, opposite = _MEANING[clause.operator]
    unit = " B" if Unit.BYTES in (clause.left.unit, clause.right.unit) else ""
    return None if holds(a, b) else f"{a}{unit} {opposite} {b}{unit}"


def _value(side: Quantity, quantities: Mapping[str, Expr], point: Mapping[str, int]) -> int:
    return side.expr.evaluate({name: quantities[name].evaluate(point) for name in side.expr.symbols})


def _tests_zero(clause: Clause) -> bool:
    """True if the part only sets the empty tensor apart: nobody needs to read that 80 is not 0."""
    if isinstance(clause, Clauses):
        return len(clause.parts) == 1 and _tests_zero(clause.parts[0])
    return clause.operator == "==" and clause.right.expr == 0

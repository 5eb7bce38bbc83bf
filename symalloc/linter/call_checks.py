"""Sites of kind `call`: what a function needs of its arguments, asked at each of its calls.

A finding of a function that depends on the shapes of its parameters alone becomes an obligation of its
callers, and so on upwards.  Where all calls of a private function meet it, the function's own finding is
taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symalloc.analysis.argument_binding import bind_function
from symalloc.analysis.call_graph import functions_as_values
from symalloc.linter.finding import Finding
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.function_prover import PlacedConstraint, domain_of
from symalloc.linter.sites.site import RelationSite
from symalloc.program.casts import extent_pairs
from symalloc.program.ir import CallFunction, Program
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import Condition, disjunction, negate
from symalloc.size.expr import Expr

COUNTED_IN_CALLERS = "held-memory"
"""The kind of site at which callers are asked about all that their callees need, too."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallObligation:
    """A condition over symbols of a callee's parameters that rules `finding` out.

    `bounded`: the callee declares bounds that do so as well.
    """

    finding: Finding
    condition: Condition
    bounded: bool = False


@dataclass(slots=True)
class _CheckedCallee:
    """A checked function with its obligations.

    `answers` holds by finding what its calls gave: None where a call meets the obligation, else the finding
    there.
    """

    obligations: list[CallObligation]
    answers: dict[Finding, list[Finding | None]] = field(default_factory=dict)


class CallChecks:
    """Follows calls from checked functions into callees checked before them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._callees: dict[str, _CheckedCallee] = {}
        self._open: set[str] = set()  # functions with calls that are not known
        self._any_private = any(function.private for function in program.functions.values())

    def enter(self, one: FunctionCheck) -> None:
        """Take in a checked function; add to its findings those of its calls."""
        cfg = one.context.analysis.cfg
        if self._any_private:
            self._open |= functions_as_values((cfg,))
        for point, call in cfg.of_type(CallFunction):
            self._call(one, call, point)
        self._callees[one.context.function.name] = _CheckedCallee(_obligations(one))

    def _call(self, one: FunctionCheck, call: CallFunction, point: int) -> None:
        callee = self._callees.get(call.name)
        if callee is None:
            self._open.add(call.name)  # recursion: its needs were not known when this call was checked
            return
        bound = bind_function(self.program.functions[call.name], call.arguments)
        for obligation in callee.obligations:
            answers = callee.answers.setdefault(obligation.finding, [])
            answers.append(_answer(one, call, point, obligation, bound))

    def discharged(self) -> frozenset[Finding]:
        """The findings of private functions that all calls rule out."""
        known: dict[Finding, bool] = {}
        for name in reversed(self._callees):  # callers first
            function = self.program.functions[name]
            for finding, answers in self._callees[name].answers.items():
                met = all(answer is None or known.get(answer, False) for answer in answers)
                known[finding] = function.private and name not in self._open and met
        return frozenset(finding for finding, met in known.items() if met)


def _obligations(one: FunctionCheck) -> list[CallObligation]:
    """Collect the findings of a function that the shapes of its parameters decide."""
    given = {
        name
        for param in one.context.function.params
        for _, extent in extent_pairs(param.type, param.type)
        for name in (extent.as_symbol,)
        if name is not None
    }
    found = []
    bounded = [dependent.finding for dependent in one.bound_dependent]
    for number, finding in enumerate((*one.findings, *bounded)):
        if finding.verdict is not Verdict.RUNTIME_CHECK or finding.guarded or finding.site.uncertainty:
            continue
        if finding.site.kind == COUNTED_IN_CALLERS:
            continue
        condition = _needed(finding)
        if condition is not None and condition.symbols <= given:
            within = number >= len(one.findings)
            found.append(CallObligation(finding=finding, condition=condition, bounded=within))
    return found


def _needed(finding: Finding) -> Condition | None:
    """The condition that rules a finding out: its constraint, or that its place is not reached."""
    if finding.asked is None:
        return None
    wanted = finding.precondition or finding.asked.constraint
    known = finding.context.function.symbols.keys()  # what Ifs test otherwise, no caller knows
    facts = (f for f in (*finding.asked.facts.guards, *finding.asked.facts.calls) if f.symbols <= known)
    return disjunction([*(negate(fact) for fact in facts if fact.symbols & wanted.symbols), wanted])


def _answer(
    one: FunctionCheck, call: CallFunction, point: int, obligation: CallObligation, bound: Mapping[str, Expr]
) -> Finding | None:
    """Ask an obligation at a call: None where it is met, else the finding, which the caller then keeps."""
    cause, condition = obligation.finding, obligation.condition
    if cause.asked is None or not condition.symbols <= bound.keys():
        return cause
    known = one.context.facts.definitions
    divisors = (d for d in cause.asked.divisors if d.symbols <= bound.keys())
    asked = PlacedConstraint(
        constraint=condition.substitute(bound).substitute(known),
        facts=one.context.facts.before[point],
        sized=cause.asked.sized,
        divisors=tuple(divisor.substitute(bound).substitute(known) for divisor in divisors),
    )
    proof = one.prover.decide(asked)
    if proof.holds:
        one.summary.count(proof)
        return None
    proof, only_empty = one.prover.explain(asked.constraint, proof)
    if proof.holds:
        one.summary.count(proof)
        return None
    needed = one.prover.needed_bounds(asked.constraint, domain_of(proof))
    if obligation.bounded and not needed and proof.verdict is Verdict.RUNTIME_CHECK:
        return cause  # the bound that the callee declares is reported there
    one.summary.count(proof)
    site = RelationSite(
        kind="call",
        instruction=call,
        relation="callee-precondition-fails",
        texts={"callee": call.name, "condition": str(condition), "rule": cause.rule.name},
        dedup_key=(point, asked.constraint),
    )
    findings = [
        one.finding(rule, site, point, asked=asked, proof=proof, only_empty=only_empty, cause=cause)
        for rule in one.rulebook.by_site("call")
        if rule.relation == site.relation
    ]
    for finding in findings:
        one.keep_unless_bounded(finding, needed)
    return None if needed else findings[0] if findings else cause

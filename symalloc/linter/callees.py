"""Sites of kind `call`: what a function needs of its arguments, asked at each of its calls.

A finding of a function that depends on the shapes of its parameters alone becomes an obligation of its
callers, and so on upwards.  Where all calls of a private function meet it, the function's own finding is
taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symalloc.analysis.argument_binding import bind_function
from symalloc.linter.finding import Finding
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.judge import Ruling
from symalloc.linter.sites.site import Site
from symalloc.program.casts import extent_pairs
from symalloc.program.model import CallFunction, If, Program
from symalloc.program.operands import function_references, instructions_of, operands_of
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import Condition, disjunction, negate
from symalloc.size.expr import Expr

__all__ = ["CalleeChecks"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Obligation:
    """`condition`, over symbols of the parameters, rules the finding out."""

    finding: Finding
    condition: Condition


@dataclass(slots=True)
class _Callee:
    """A checked function: what it needs, and how its calls fare: None where they meet it, or the finding
    there.
    """

    obligations: list[_Obligation]
    answers: dict[Finding, list[Finding | None]] = field(default_factory=dict)


class CalleeChecks:
    """Follows calls from checked functions into callees checked before them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.callees: dict[str, _Callee] = {}
        self.open = _held_as_values(program)

    def enter(self, one: FunctionCheck) -> None:
        """Takes in a checked function; adds to its findings those of its calls."""
        for index, instruction in one.scene.analysis.cfg.instructions:
            if isinstance(instruction, CallFunction):
                self._call(one, instruction, index)
        self.callees[one.scene.function.name] = _Callee(_obligations(one))

    def _call(self, one: FunctionCheck, call: CallFunction, index: int) -> None:
        callee = self.callees.get(call.name)
        if callee is None:
            self.open.add(call.name)  # recursion: its needs were not known when this call was checked
            return
        bound = bind_function(self.program.functions[call.name], call.arguments)
        for obligation in callee.obligations:
            answers = callee.answers.setdefault(obligation.finding, [])
            answers.append(_answer(one, call, index, obligation, bound))

    def discharged(self) -> frozenset[Finding]:
        """The findings of private functions that all calls rule out."""
        known: dict[Finding, bool] = {}
        for name in reversed(self.callees):  # callers first
            function = self.program.functions[name]
            for finding, answers in self.callees[name].answers.items():
                met = all(answer is None or known.get(answer, False) for answer in answers)
                known[finding] = function.private and name not in self.open and met
        return frozenset(finding for finding, met in known.items() if met)


def _held_as_values(program: Program) -> set[str]:
    """The functions that are used other than by calling them: who calls them is not known."""
    if not any(function.private for function in program.functions.values()):
        return set(program.functions)
    found: set[str] = set()
    for function in program.functions.values():
        found.update(function_references((function.body.result,)))
        for instruction in instructions_of(function.body):
            found.update(function_references(operands_of(instruction)))
            if isinstance(instruction, If):
                found.update(function_references((instruction.then.result, instruction.otherwise.result)))
    return found


def _obligations(one: FunctionCheck) -> list[_Obligation]:
    """What the function needs of the shapes of its parameters."""
    given = {
        name
        for param in one.scene.function.params
        for _, extent in extent_pairs(param.type, param.type)
        for name in (extent.as_symbol,)
        if name is not None
    }
    found = []
    for finding in one.findings:
        if finding.verdict is not Verdict.RUNTIME_CHECK or finding.guarded or finding.site.doubt is not None:
            continue
        condition = _needed(finding)
        if condition is not None and condition.symbols <= given:
            found.append(_Obligation(finding=finding, condition=condition))
    return found


def _needed(finding: Finding) -> Condition | None:
    """What rules a finding out: its constraint, or that its place is not reached."""
    if finding.constraint is None or finding.facts is None or finding.judgement is None:
        return None
    wanted = finding.judgement.proof.precondition or finding.constraint
    facts = (*finding.facts.guards, *finding.facts.calls)
    return disjunction([*(negate(fact) for fact in facts if fact.symbols & wanted.symbols), wanted])


def _answer(
    one: FunctionCheck, call: CallFunction, index: int, obligation: _Obligation, bound: Mapping[str, Expr]
) -> Finding | None:
    """None where the call meets the obligation; otherwise the finding, which is added to those of the
    caller.
    """
    condition = obligation.condition
    if not condition.symbols <= bound.keys():
        return obligation.finding
    known = one.scene.facts.definitions
    constraint = condition.substitute(bound).substitute(known)
    facts = one.scene.facts.before[index]
    needed = (d for d in obligation.finding.divisors if d.symbols <= bound.keys())
    below = tuple(divisor.substitute(bound).substitute(known) for divisor in needed)
    ruling = one.judge.rule(constraint, facts, sized=obligation.finding.site.sized, divisors=below)
    if ruling.verdict in (Verdict.ALWAYS_VALID, Verdict.VACUOUS) or ruling.domain is None:
        one.tally.count(ruling)
        return None
    judgement = one.judge.explain(constraint, ruling.domain)
    one.tally.count(Ruling(judgement.verdict, False, ruling.domain, judgement.proof.unknown))
    site = _call_site(call, index, obligation, constraint)
    made = [
        Finding(
            rule=rule,
            site=site,
            step=index,
            function=one.scene.function.name,
            facts=facts,
            constraint=constraint,
            domain=ruling.domain,
            judgement=judgement,
            cause=obligation.finding,
            divisors=below,
        )
        for rule in one.rulebook.by_site("call")
        if rule.relation == site.relation
    ]
    for finding in made:
        one.add(finding)
    return made[0] if made else obligation.finding


def _call_site(call: CallFunction, index: int, obligation: _Obligation, constraint: Condition) -> Site:
    """The site of a call at step `index` that may not meet an obligation, which is `constraint` there."""
    source = obligation.finding
    return Site(
        kind="call",
        instruction=call,
        relation="callee-precondition-fails",
        texts={"callee": call.name, "condition": str(obligation.condition), "rule": source.rule.name},
        sized=source.site.sized,
        once=(index, constraint),
    )

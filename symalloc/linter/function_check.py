"""Checks one function: every site, every rule that asks there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from symalloc.analysis.facts import Facts
from symalloc.linter.finding import Finding
from symalloc.linter.judge import Judge, Ruling
from symalloc.linter.sites.site import Scene, Site
from symalloc.linter.sites.sizes import divisor_site
from symalloc.linter.sites.table import IN_FUNCTIONS, IN_INSTRUCTIONS, KEYS
from symalloc.linter.tally import Tally
from symalloc.program.model import Instruction
from symalloc.prover.domain import Domain
from symalloc.prover.verdict import Verdict
from symalloc.rulebook.book import Rulebook
from symalloc.rulebook.rule import Rule
from symalloc.size.condition import Condition
from symalloc.size.defined import evaluated_divisors
from symalloc.size.expr import Expr

__all__ = ["FunctionCheck"]

Makers = tuple[Callable[[Scene, Any], Iterator[Site]], ...]


class FunctionCheck:
    """Finds what is wrong with one function.

    `findings` are in no order; `leaning` are those that hold within declared bounds, with the symbols
    they need. Instructions of equal structure and equal facts fare alike: one that was clean is not
    looked at again.
    """

    def __init__(self, scene: Scene, rulebook: Rulebook, judge: Judge) -> None:
        self.scene, self.rulebook, self.judge = scene, rulebook, judge
        self.tally = Tally()
        self.findings: list[Finding] = []
        self.leaning: list[tuple[tuple[str, ...], Finding]] = []
        self._clean: dict[Hashable, Tally] = {}
        self._seen: dict[Hashable, Finding] = {}
        self._divided: set[tuple[Expr, Facts]] = set()
        self._broke = False
        self._makers: dict[type, Makers] = {}

    def run(self) -> None:
        """Checks all sites."""
        for kinds, make in IN_FUNCTIONS:
            if any(self.rulebook.by_site(kind) for kind in kinds):
                for step, site in make(self.scene):
                    self.unless_clean(site.key, step, partial(self.site, site, step))
        for index, instruction in self.scene.analysis.cfg.instructions:
            if type(instruction) in IN_INSTRUCTIONS:
                self.instruction(instruction, index)

    def instruction(self, instruction: Instruction, index: int) -> None:
        """Checks the sites of one instruction, unless an equal one was clean."""
        make = KEYS.get(type(instruction))
        key = None if make is None else (type(instruction), make(self.scene, instruction))
        self.unless_clean(key, index, partial(self.sites, instruction, index))

    def unless_clean(self, key: Hashable | None, step: int, check: Callable[[], None]) -> None:
        """Runs `check`, unless it was run for an equal key and equal facts and found nothing."""
        if key is None:
            check()
            return
        key = (key, self.scene.facts.before[step])
        known = self._clean.get(key)
        if known is not None:
            self.tally.add(known)
            return
        before, self._broke = self.tally.copy(), False
        check()
        if not self._broke:
            self._clean[key] = self.tally.since(before)

    def sites(self, instruction: Instruction, index: int) -> None:
        """Checks the sites of one instruction, all of them."""
        for make in self._makers_for(type(instruction)):
            for site in make(self.scene, instruction):
                self.site(site, index)

    def _makers_for(self, kind: type) -> Makers:
        makers = self._makers.get(kind)
        if makers is None:
            every = bool(self.rulebook.by_site("divisor"))
            wanted = (make for k, make in IN_INSTRUCTIONS[kind] if every or self.rulebook.by_site(k))
            makers = self._makers[kind] = tuple(wanted)
        return makers

    def site(self, site: Site, step: int) -> None:
        """Asks every rule about one site."""
        divisors = self._divisors(site, step)
        for rule in self.rulebook.by_site(site.kind):
            if rule.constraint is None:
                if rule.relation == site.relation and self.judge.possible(self.scene.facts.before[step]):
                    self.add(self._finding(rule, site, step))
            elif rule.needs <= site.quantities.keys():
                self._ask(rule, site, step, divisors)
            elif site.unknown is not None:
                self._undecidable(rule, site, step)

    def _finding(self, rule: Rule, site: Site, step: int, **judged: Any) -> Finding:
        return Finding(rule=rule, site=site, step=step, function=self.scene.function.name, **judged)

    def add(self, finding: Finding) -> None:
        """Keeps a finding, unless one like it is kept already; one that is certain goes before a doubtful
        one.
        """
        self._broke = True
        if finding.site.once is not None:
            key = (finding.rule.id, finding.site.once)
            other = self._seen.get(key)
            if other is not None and (other.site.doubt is None or finding.site.doubt is not None):
                return
            if other is not None:
                self.findings.remove(other)
            self._seen[key] = finding
        self.findings.append(finding)

    def _undecidable(self, rule: Rule, site: Site, step: int) -> None:
        self._broke = True
        settled = site if site.settle is None else site.settle(site)
        if settled is not None:
            self.tally.count(Ruling(Verdict.RUNTIME_CHECK, unknown=True))
            self.add(self._finding(rule, settled, step, unknown=True))

    def _ask(self, rule: Rule, site: Site, step: int, divisors: tuple[Expr, ...]) -> None:
        """Asks a rule's constraint where `divisors` are at least 1."""
        constraint = rule.condition(site.quantities)
        if constraint.as_bool is True:
            self.tally.always_valid += 1
            return
        constraint = constraint.substitute(self.scene.facts.definitions)
        facts = self.scene.facts.before[step]
        ruling = self.judge.rule(constraint, facts, sized=site.sized, divisors=divisors)
        if ruling.verdict in (Verdict.ALWAYS_VALID, Verdict.VACUOUS) or ruling.domain is None:
            self.tally.count(ruling)
            return
        asked = self._finding(
            rule, site, step, facts=facts, constraint=constraint, domain=ruling.domain, divisors=divisors
        )
        self._broken(asked, constraint, ruling.domain)

    def _divisors(self, site: Site, step: int) -> tuple[Expr, ...]:
        """The divisors of a site's quantities, after asking about them: what the site's own constraints are
        judged by takes them to be at least 1.
        """
        known = self.scene.facts.definitions
        sizes = site.quantities.values()
        found = (
            evaluated_divisors(size.substitute(known) for size in sizes)
            if known
            else evaluated_divisors(sizes)
        )
        for divisor in found:
            key = (divisor, self.scene.facts.before[step])
            if key not in self._divided:
                self._divided.add(key)
                self.site(divisor_site(divisor, site), step)
        return found

    def _broken(self, asked: Finding, constraint: Condition, domain: Domain) -> None:
        """Records a constraint that does not always hold."""
        rule, site = asked.rule, asked.site
        settled = site if site.settle is None else site.settle(site)
        self._broke = True
        if settled is None:
            return
        judgement = self.judge.explain(constraint, domain)
        checked = settled.checked is not None and rule.condition(settled.quantities) == settled.checked
        guarded = checked and judgement.verdict is Verdict.RUNTIME_CHECK
        verdict = judgement.verdict if settled.doubt is None else Verdict.RUNTIME_CHECK
        self.tally.count(Ruling(verdict, guarded, domain, judgement.proof.unknown))
        finding = replace(asked, site=settled, judgement=judgement, guarded=guarded)
        if judgement.verdict is Verdict.RUNTIME_CHECK and not guarded:
            names = self.judge.needs_declared(constraint, domain)
            if names:
                self.leaning.append((names, finding))
                return
        self.add(finding)

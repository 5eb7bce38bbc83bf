"""Checks a program: every function, callees first; the findings of rules become diagnostics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from symalloc.analysis.facts import FunctionFacts
from symalloc.linter.call_checks import CallChecks
from symalloc.linter.call_duplicates import merge_callers
from symalloc.linter.contexts import FunctionContexts
from symalloc.linter.diagnostic import Diagnostic, LintSummary, Report
from symalloc.linter.finding import Finding
from symalloc.linter.fixes import fix_candidates
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.function_prover import FunctionDomains, FunctionProver, Together
from symalloc.linter.lone_kernels import SITES, lone_kernels
from symalloc.linter.sites.site import FunctionContext
from symalloc.linter.unproved_indices import UnprovedIndices
from symalloc.program.ir import Function, Program
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.rulebook.book import Rulebook
from symalloc.size.condition import Condition


def check(
    program: Program,
    rulebook: Rulebook,
    prover: Prover,
    *,
    assume: Sequence[Condition] = (),
    budget: int | None = None,
) -> Report:
    """Check `program`; findings come in program order.

    A condition of `assume` holds in every function that has all its symbols.  `budget`: the most bytes that
    a call may hold at once, None where that is not asked.
    """
    started = perf_counter()

    def proving(function: Function, facts: FunctionFacts) -> FunctionProver:
        return FunctionProver(prover, FunctionDomains(function, facts, assume))

    def checking(context: FunctionContext) -> FunctionCheck:
        return FunctionCheck(context, rulebook, proving(context.function, context.facts))

    indices = UnprovedIndices(program.kernels, prover)
    contexts = FunctionContexts(program, lambda *one: Together(partial(proving, *one)), indices, budget)
    checks = [checking(context) for context in contexts.plain]
    calls = CallChecks(program)
    for one in checks:
        expanded = contexts.expanded.get(one.context.function.name)
        one.run(expanded=None if expanded is None else checking(expanded))
        calls.enter(one)
    discharged, summary = calls.discharged(), LintSummary()
    for one in checks:
        one.discharge(discharged)
        one.report_declared_bounds()
        summary.add(one.summary)
    summary.data_dependent = indices.data_dependent
    merged = merge_callers([f for one in checks for f in one.findings]) if contexts.expanded else {}
    diagnostics: list[Diagnostic] = []
    for one in checks:
        diagnostics += _diagnostics(one, merged)
    for one in _alone(program, contexts, rulebook, prover):
        summary.add(replace(one.summary, functions=0))
        diagnostics += _diagnostics(one, {})
    summary.seconds = perf_counter() - started
    return Report(diagnostics=tuple(diagnostics), summary=summary)


def _alone(
    program: Program, contexts: FunctionContexts, rulebook: Rulebook, prover: Prover
) -> Iterator[FunctionCheck]:
    """Check the kernels that nothing calls; those that are right for some shapes may be meant for these."""
    rules = Rulebook(rules=tuple(rule for rule in rulebook.rules if rule.site in SITES))
    graphs, indices = (analysis.cfg for analysis in contexts.analyses.values()), contexts.indices
    lone = lone_kernels(program, graphs, indices) if rules.rules else None
    if lone is None:
        return

    def proving(function: Function, facts: FunctionFacts) -> FunctionProver:
        return FunctionProver(prover, FunctionDomains(function, facts, ()))

    for context in FunctionContexts(lone, lambda *one: Together(partial(proving, *one)), indices).plain:
        one = FunctionCheck(context, rules, proving(context.function, context.facts))
        one.run()
        one.findings = [found for found in one.findings if found.verdict is Verdict.ALWAYS_INVALID]
        yield one


def _diagnostics(one: FunctionCheck, merged: Mapping[Finding, Finding | None]) -> Iterable[Diagnostic]:
    for found in sorted(one.findings, key=lambda f: f.point):
        finding = merged.get(found, found)
        diagnostic = None if finding is None else finding.diagnostic(one.prover.prover)
        if finding is not None and diagnostic is not None:
            yield replace(diagnostic, candidates=fix_candidates(finding, one.prover))

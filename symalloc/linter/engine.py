"""Checks a program: every function, callees first; the findings of rules become diagnostics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import perf_counter

from symalloc.analysis.facts import facts_of
from symalloc.analysis.handles import written_zero_offset_views
from symalloc.analysis.interprocedural import analyse
from symalloc.linter.call_checks import CallChecks
from symalloc.linter.diagnostic import Diagnostic, LintSummary, Report
from symalloc.linter.fixes import fix_candidates
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.function_prover import FunctionDomains, FunctionProver
from symalloc.linter.sites.site import FunctionContext
from symalloc.program.ir import Program
from symalloc.program.operands import TypeNumbering
from symalloc.prover.prover import Prover
from symalloc.rulebook.book import Rulebook
from symalloc.size.condition import Condition


def check(
    program: Program, rulebook: Rulebook, prover: Prover, *, assume: Sequence[Condition] = ()
) -> Report:
    """Check `program`; findings come in program order.

    A condition of `assume` holds in every function that has all its symbols.
    """
    started, before = perf_counter(), Counter(prover.decided)
    checks = [
        FunctionCheck(
            context,
            rulebook,
            FunctionProver(prover, FunctionDomains(context.function, context.facts, assume)),
        )
        for context in _contexts(program)
    ]
    calls = CallChecks(program)
    for one in checks:
        one.run()
        calls.enter(one)
    discharged, summary = calls.discharged(), LintSummary()
    diagnostics: list[Diagnostic] = []
    for one in checks:
        one.report_declared_bounds()
        one.discharge(discharged)
        diagnostics += _diagnostics(one)
        summary.add(one.summary)
    decided = Counter(prover.decided) - before
    summary.by_solver["z3"] = decided.pop("z3", 0)
    summary.by_solver["cascade"] = decided.total()
    summary.seconds = perf_counter() - started
    return Report(diagnostics=tuple(diagnostics), summary=summary)


def _contexts(program: Program) -> Iterable[FunctionContext]:
    numbers, analyses = TypeNumbering(), analyse(program)
    summaries = {name: analysis.summary for name, analysis in analyses.items()}
    for name, analysis in analyses.items():  # callees first
        yield FunctionContext(
            program=program,
            function=program.functions[name],
            analysis=analysis,
            facts=facts_of(analysis.cfg, program.kernels, numbers),
            numbers=numbers,
            written_views=written_zero_offset_views(analysis.points_to, analysis.effects),
            summaries=summaries,
        )


def _diagnostics(one: FunctionCheck) -> Iterable[Diagnostic]:
    for finding in sorted(one.findings, key=lambda f: f.point):
        diagnostic = finding.diagnostic(one.prover.prover)
        if diagnostic is not None:
            yield replace(diagnostic, candidates=fix_candidates(finding, one.prover))

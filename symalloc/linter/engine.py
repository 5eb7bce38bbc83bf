"""Checks a program: every function, callees first; what rules find becomes diagnostics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from symalloc.analysis.facts import facts_of
from symalloc.analysis.handles import written_zero_offset_views
from symalloc.analysis.interprocedural import analyse
from symalloc.linter.callees import CalleeChecks
from symalloc.linter.declared import declared_bounds
from symalloc.linter.diagnostic import Diagnostic, Summary
from symalloc.linter.domains import Domains
from symalloc.linter.finding import Finding
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.judge import Judge
from symalloc.linter.sites.handed_over import heedless_leaves
from symalloc.linter.sites.site import Scene
from symalloc.linter.tally import Tally
from symalloc.program.model import Program
from symalloc.program.operands import TypeNumbering
from symalloc.prover.prover import Prover
from symalloc.rulebook.book import Rulebook
from symalloc.size.condition import Condition

__all__ = ["CheckResult", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What checking one or more programs gave.

    `findings` are what the diagnostics were made from, in the same order.
    """

    diagnostics: tuple[Diagnostic, ...] = ()
    counts: Summary = field(default_factory=Summary)
    findings: tuple[Finding, ...] = ()

    def merge(self, other: CheckResult) -> CheckResult:
        """Both results as one."""
        return CheckResult(
            diagnostics=(*self.diagnostics, *other.diagnostics),
            counts=_added(self.counts, other.counts),
            findings=(*self.findings, *other.findings),
        )


def check(
    program: Program,
    rulebook: Rulebook,
    prover: Prover,
    *,
    assume: Sequence[Condition] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> CheckResult:
    """The findings in `program`, in program order, and counts.

    `assume` holds in every function that has all symbols of it.  `select` and `ignore` are ids of rules
    or beginnings of ids; raises RuleError for one that is unknown.
    """
    started, before = perf_counter(), Counter(prover.decided)
    book = rulebook.select(select, ignore) if select or ignore else rulebook
    checks = [
        FunctionCheck(scene, book, Judge(prover, Domains(scene.function, scene.facts, assume)))
        for scene in _scenes(program)
    ]
    callees = CalleeChecks(program)
    for one in checks:
        one.run()
        callees.enter(one)
    tally, reported = Tally(), list[tuple[Finding, Diagnostic]]()
    dropped = callees.discharged()
    for one in checks:
        one.findings += declared_bounds(one)
        _forgive(one, dropped)
        tally.add(one.tally)
        reported += _reported(one, prover)
    return CheckResult(
        diagnostics=tuple(diagnostic for _, diagnostic in reported),
        findings=tuple(finding for finding, _ in reported),
        counts=_summary(tally, len(checks), Counter(prover.decided) - before, perf_counter() - started),
    )


def _scenes(program: Program) -> Iterable[Scene]:
    numbers, heedless = TypeNumbering(), dict[str, frozenset[int]]()
    for name, analysis in analyse(program).items():  # callees first
        heedless[name] = heedless_leaves(program, analysis, heedless)
        yield Scene(
            program=program,
            function=program.functions[name],
            analysis=analysis,
            facts=facts_of(analysis.cfg, program.kernels, numbers),
            numbers=numbers,
            written_views=written_zero_offset_views(analysis.points_to, analysis.effects),
            heedless=heedless,
        )


def _forgive(one: FunctionCheck, dropped: frozenset[Finding]) -> None:
    """Takes out findings that every caller rules out: they are run-time checks that something guards."""
    kept = [f for f in one.findings if f not in dropped]
    one.tally.guarded += len(one.findings) - len(kept)
    one.findings[:] = kept


def _reported(one: FunctionCheck, prover: Prover) -> Iterable[tuple[Finding, Diagnostic]]:
    for finding in sorted(one.findings, key=lambda f: f.step):
        diagnostic = finding.diagnostic(one.scene, prover)
        if diagnostic is not None:
            yield finding, diagnostic


def _summary(tally: Tally, functions: int, decided: Mapping[str, int], seconds: float) -> Summary:
    return Summary(
        functions=functions,
        constraints=tally.constraints,
        always_valid=tally.always_valid,
        always_invalid=tally.always_invalid,
        runtime_check=tally.runtime_check,
        guarded=tally.guarded,
        unknown=tally.unknown,
        by_solver={"cascade": sum(n for k, n in decided.items() if k != "z3"), "z3": decided.get("z3", 0)},
        seconds=seconds,
    )


def _added(left: Summary, right: Summary) -> Summary:
    return Summary(
        functions=left.functions + right.functions,
        constraints=left.constraints + right.constraints,
        always_valid=left.always_valid + right.always_valid,
        always_invalid=left.always_invalid + right.always_invalid,
        runtime_check=left.runtime_check + right.runtime_check,
        guarded=left.guarded + right.guarded,
        unknown=left.unknown + right.unknown,
        by_solver=dict(Counter(left.by_solver) + Counter(right.by_solver)),
        seconds=left.seconds + right.seconds,
    )

"""Findings at one instruction of a function that is written out in several callers: one is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from symalloc.linter.finding import Finding
from symalloc.program import ir


def merge_callers(findings: Sequence[Finding]) -> Mapping[Finding, Finding | None]:
    """Changes to findings that stand at an instruction written out in callers.

    Of those of one rule at one instruction those of one place are kept: a certain one goes before an
    uncertain one, an error before a warning, the function itself before a caller.  The kept one names the
    calls that lead to the others; these become None.
    """
    found: dict[tuple[str, ir.Var], list[Finding]] = {}
    for finding in findings:
        if finding.original is not None:
            found.setdefault((finding.rule.id, finding.original.var), []).append(finding)
    changes: dict[Finding, Finding | None] = {}
    for same in found.values():
        if len(same) > 1 and any(finding.calls for finding in same):
            changes |= _merged(same)
    return changes


def _merged(same: Sequence[Finding]) -> Mapping[Finding, Finding | None]:
    first = min(same, key=_rank)
    rest = [finding for finding in same if finding.site.instruction is not first.site.instruction]
    return {**dict.fromkeys(rest), first: replace(first, further_calls=tuple(_outermost(rest)))}


def _outermost(findings: Iterable[Finding]) -> Iterable[ir.CallFunction]:
    return (finding.calls[0] for finding in findings if finding.calls)


def _rank(finding: Finding) -> tuple[object, ...]:
    severity = finding.severity
    return (
        finding.site.uncertainty is not None,
        severity is None,
        0 if severity is None else severity.rank,
        len(finding.calls),
    )

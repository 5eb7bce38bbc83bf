"""Counts behind a report: findings by rule, and which part of the prover decided."""

from __future__ import annotations

from collections import Counter

from symalloc.linter.diagnostic import Report

__all__ = ["render_statistics"]


def render_statistics(report: Report) -> str:
    """A line per rule that found something, then the time and who decided."""
    found = Counter((d.rule, d.name) for d in report)
    lines = [f"{count:>6}  {rule} {name}" for (rule, name), count in sorted(found.items())]
    decided = ", ".join(f"{who} {count:,}" for who, count in sorted(report.summary.by_solver.items()))
    s = report.summary
    checked = f"{s.functions:,} functions in {len(report.files):,} files, {s.seconds:.2f} s"
    lines.append(f"{checked}; decided by: {decided}" if decided else checked)
    return "\n".join(lines) + "\n"

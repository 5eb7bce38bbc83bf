"""One line a finding: `file:line:column: SYM101 message`, which editors and grep understand."""

from __future__ import annotations

from symalloc.linter.diagnostic import Diagnostic, Report
from symalloc.report.cells import visible
from symalloc.report.places import file_span, full_message

__all__ = ["render_concise"]


def render_concise(report: Report) -> str:
    """All findings, one line each; empty where there are none."""
    return "".join(f"{_line(d, report)}\n" for d in report)


def _line(diagnostic: Diagnostic, report: Report) -> str:
    span = file_span(report, diagnostic)
    place = (
        f"{span.file}:{span.line}:{span.column}" if span else diagnostic.file or diagnostic.module or "module"
    )
    where = f" (in `{diagnostic.function}`)" if span is None and diagnostic.function else ""
    return visible(f"{place}: {diagnostic.rule} {full_message(diagnostic)}{where}")

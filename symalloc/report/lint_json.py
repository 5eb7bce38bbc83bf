"""The report as JSON, version 1; `symalloc/report/schema/report-1.json` describes it."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from symalloc.linter.diagnostic import Dependent, Diagnostic, Report

VERSION = 1
VERDICTS = ("always_valid", "always_invalid", "runtime_check")
COUNTS = ("functions", "constraints", *VERDICTS, "guarded", "unknown", "data_dependent")


def render_json(report: Report) -> str:
    """Render the report as one JSON document, keys in the order of the schema."""
    document = {
        "version": VERSION,
        "files": list(report.files),
        "diagnostics": [_diagnostic(d, report) for d in report],
        "summary": _summary(report),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def schema_text() -> str:
    """The JSON Schema of the report."""
    return (resources.files("symalloc.report") / "schema" / "report-1.json").read_text(encoding="utf-8")


def _diagnostic(d: Diagnostic, report: Report) -> dict[str, Any]:
    span = report.file_span(d)
    return {
        "rule": d.rule,
        "name": d.name,
        "severity": d.severity.value,
        "verdict": d.verdict.value if d.verdict else None,
        "message": d.one_line,
        "function": d.function or None,
        "file": (span.file if span else d.file) or None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "end_line": span.end_line if span else None,
        "end_column": span.end_column if span else None,
        "path": d.path or None,
        "counterexample": None if d.counterexample is None else dict(d.counterexample),
        "smallest": None if d.counterexample is None else d.smallest,
        "precondition": d.precondition,
        "reason": d.reason,
        "guarded": d.guarded,
        "places": [_place(one, report) for one in d.dependents],
        "fix": {"title": d.fix.title, "safe": d.fix.safe} if d.fix else None,
    }


def _place(one: Dependent, report: Report) -> dict[str, Any]:
    span = None if one.span is None or report.printed_after(one.span) else one.span
    return {
        "rule": one.rule,
        "constraint": one.constraint,
        "file": span.file if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
    }


def _summary(report: Report) -> dict[str, Any]:
    s, baseline = report.summary, {"known": report.known, "stale": report.stale}
    solvers = {"by_solver": dict(s.by_solver)}
    return {name: getattr(s, name) for name in COUNTS} | baseline | solvers | {"seconds": round(s.seconds, 6)}

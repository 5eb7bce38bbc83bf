"""The formats by name; each renderer is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from symalloc.linter.diagnostic import Report

if TYPE_CHECKING:
    from symalloc.rulebook.rule import Rule

FORMATS = ("text", "concise", "json", "sarif", "github", "junit")


def render(report: Report, form: str, *, rules: Sequence[Rule] = (), **text_options: Any) -> str:
    """Render `report` in one of `FORMATS`; `rules` are for SARIF, `text_options` those of `render_text`."""
    match form:
        case "text":
            from symalloc.report.text import render_text

            return render_text(report, **text_options)
        case "json":
            from symalloc.report.lint_json import render_json

            return render_json(report)
        case "sarif":
            from symalloc.report.sarif import render_sarif

            return render_sarif(report, rules=rules)
        case "junit":
            from symalloc.report.junit import render_junit

            return render_junit(report)
        case "concise" | "github":
            from symalloc.report.lines import render_concise, render_github

            return render_concise(report) if form == "concise" else render_github(report)
    raise ValueError(f"unknown format `{form}`")

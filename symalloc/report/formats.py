"""The formats by name; each renderer is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symalloc.linter.diagnostic import Report

if TYPE_CHECKING:
    from symalloc.rulebook.rule import Rule

FORMATS = ("text", "concise", "json", "sarif", "github")


def render(
    report: Report,
    form: str,
    *,
    rules: Sequence[Rule] = (),
    width: int | None = None,
    colour: bool = False,
    quiet: bool = False,
) -> str:
    """Render `report` in one of `FORMATS`; width, colour and quiet are for text, `rules` for SARIF."""
    match form:
        case "text":
            from symalloc.report.text import render_text

            return render_text(report, width=width, colour=colour, quiet=quiet)
        case "json":
            from symalloc.report.lint_json import render_json

            return render_json(report)
        case "sarif":
            from symalloc.report.sarif import render_sarif

            return render_sarif(report, rules=rules)
        case "concise" | "github":
            from symalloc.report.lines import render_concise, render_github

            return render_concise(report) if form == "concise" else render_github(report)
    raise ValueError(f"unknown format `{form}`")

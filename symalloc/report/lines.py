"""Formats with one line a finding: concise ones for editors and grep, workflow commands for GitHub."""

from __future__ import annotations

from symalloc.linter.diagnostic import Diagnostic, Report, Severity
from symalloc.prover.verdict import counterexample_title
from symalloc.report.cells import visible

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render_concise(report: Report) -> str:
    """Render all findings, each as `file:line:column: SYM101 message`; empty where there are none."""
    return "".join(f"{_concise(d, report)}\n" for d in report)


def _concise(diagnostic: Diagnostic, report: Report) -> str:
    span = report.file_span(diagnostic)
    place = (
        f"{span.file}:{span.line}:{span.column}" if span else diagnostic.file or diagnostic.module or "module"
    )
    where = f" (in `{diagnostic.function}`)" if span is None and diagnostic.function else ""
    return visible(f"{place}: {diagnostic.rule} {diagnostic.one_line}{where}")


def render_github(report: Report) -> str:
    """Render all findings, one workflow command each; GitHub annotates the pull request with them.

    What the baseline left out is a notice without a place.
    """
    known = ", ".join(report.known_remarks)
    notice = f"::notice title=symalloc baseline::{_data(known)}\n" if known else ""
    return "".join(f"{_command(d, report)}\n" for d in report) + notice


def _command(diagnostic: Diagnostic, report: Report) -> str:
    properties = ",".join(f"{k}={_property(v)}" for k, v in _properties(diagnostic, report).items())
    return f"::{_COMMANDS[diagnostic.severity]} {properties}::{_data(body_of(diagnostic))}"


def _properties(diagnostic: Diagnostic, report: Report) -> dict[str, str]:
    span = report.file_span(diagnostic)
    file = span.file if span else diagnostic.file
    properties = {"file": file} if file else {}
    if span:
        properties |= {"line": str(span.line), "col": str(span.column), "endLine": str(span.end_line)}
        if span.end_line == span.line:
            properties["endColumn"] = str(span.end_column)
    return properties | {"title": diagnostic.rule}


def body_of(diagnostic: Diagnostic, *, help_too: bool = False) -> str:
    """The message of a finding, and on further lines its path, counterexample and precondition."""
    lines = [diagnostic.one_line]
    if diagnostic.path:
        lines.append(f"on paths where {diagnostic.path}")
    if diagnostic.counterexample:
        binding = ", ".join(f"{name} = {value}" for name, value in diagnostic.counterexample.items())
        lines.append(
            f"{counterexample_title(diagnostic.smallest)}: {binding}"
            + (f" -> {diagnostic.consequence}" if diagnostic.consequence else "")
        )
    if diagnostic.precondition:
        lines.append(f"holds only when: {diagnostic.precondition}")
    if help_too and diagnostic.help:
        lines.append(f"help: {diagnostic.help}")
    return "\n".join(map(visible, lines))


def _data(text: str) -> str:
    """Escape what would end or nest a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

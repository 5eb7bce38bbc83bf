"""Where a finding stands, for formats that know files only."""

from __future__ import annotations

from symalloc.linter.diagnostic import Diagnostic, Report
from symalloc.program.span import Span

__all__ = ["file_span", "full_message", "origin_of"]


def origin_of(report: Report, span: Span) -> str | None:
    """The stage whose printed script `span` points into; None where it points into a file."""
    source = report.sources.get(span.file)
    return source.origin if source else None


def file_span(report: Report, diagnostic: Diagnostic) -> Span | None:
    """The finding's span where it points into a file: a place in a printed script is of no use there."""
    span = diagnostic.span
    return None if span is None or origin_of(report, span) else span


def full_message(diagnostic: Diagnostic) -> str:
    """The message on one line, with the pass that brought the finding in."""
    message = " ".join(diagnostic.message.split())
    return f"{message} [introduced by {diagnostic.stage}]" if diagnostic.stage else message

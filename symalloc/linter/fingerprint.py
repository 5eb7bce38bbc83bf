"""Keys of findings that stay the same when lines move, so that a later run knows a finding again."""

from __future__ import annotations

import hashlib
from collections import Counter

from symalloc.linter.diagnostic import Diagnostic, Report
from symalloc.program.span import split_lines


def fingerprints(report: Report) -> list[str]:
    """The key of each finding: of its rule, function and the text of its line, not of the line's number.

    Findings of one file that agree in all of that are numbered.  The file's name is no part of a key.
    """
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for diagnostic in report:
        text = _text(diagnostic, report)
        seen[diagnostic.file, text] += 1
        found.append(hashlib.sha256(f"{text}\0{seen[diagnostic.file, text]}".encode()).hexdigest()[:32])
    return found


def _text(d: Diagnostic, report: Report) -> str:
    return "\0".join((d.rule, d.module, d.function, d.stage or "", _line_of(d, report) or d.message))


def _line_of(d: Diagnostic, report: Report) -> str:
    source = report.sources.get(d.span.file) if d.span else None
    lines = split_lines(source.text) if source else []
    return lines[d.span.line - 1].strip() if d.span and d.span.line <= len(lines) else ""

"""Assertions for the tests of projects that build Relax modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from symalloc.linter.diagnostic import Report
from symalloc.session.api import FileKeywords, Model, lint


def assert_memory_safe(target: Model | Sequence[Model], **options: Unpack[FileKeywords]) -> Report:
    """Fail, showing the findings, where `symalloc.lint(target, **options)` has errors or warnings.

        symalloc.assert_memory_safe(module, assume=["n <= 2048"])

    Return the report.  Raises AssertionError for findings, UsageError for what `lint` refuses.
    """
    __tracebackhide__ = True  # pytest shows the line of the test, not this one
    report = lint(target, **options)
    if not report.ok:
        from symalloc.report.text import render_text

        raise AssertionError(f"memory faults:\n\n{render_text(report)}")
    return report

"""The findings of one file, from wherever it was linted; and their form in a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from symalloc.linter.diagnostic import Report
from symalloc.program.ir import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedFile:
    """The report on one file, and the symbols of its functions with where they get their values.

    `settled`: every fix that was tried was tried to the end.
    """

    report: Report
    symbols: Mapping[str, tuple[Origin, ...]]
    settled: bool = True

    @property
    def is_complete(self) -> bool:
        """True if all of it was read, and nothing was left undecided: linting it again gives the same."""
        return self.settled and not self.report.unread and not self.report.summary.unknown


def report_of(linted: Sequence[LintedFile], *, seconds: float, skipped: int) -> Report:
    """Return the report on some files; it took `seconds`, and `skipped` files hold no module."""
    joined = Report.joined([one.report for one in linted])
    return replace(joined, summary=replace(joined.summary, seconds=seconds), skipped=skipped)


def stored(linted: LintedFile) -> Any:
    """Return the findings as what JSON can hold; `restored` makes them again, without what tries fixes."""
    bare = tuple(replace(diagnostic, candidates=()) for diagnostic in linted.report.diagnostics)
    return msgspec.to_builtins(replace(linted, report=replace(linted.report, diagnostics=bare)))


def restored(value: Any) -> LintedFile:
    """Return the findings that `stored` was given; raises msgspec.ValidationError for anything else."""
    return msgspec.convert(value, LintedFile)

"""Suppression comments against findings: what is allowed goes, what allows nothing is a finding itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.linter.suppress import Suppression, apply_suppressions, find_suppressions
from symalloc.program.span import Source
from symalloc.rulebook.book import Rulebook
from symalloc.rulebook.error import RuleError

__all__ = ["Comments"]

UNUSED_SUPPRESSION = "SYM901"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comments:
    """How comments are judged: the rules that are `known`, those that are `active` in this run.

    `report_unused`: whether a comment that allowed nothing is a finding.  One that names no rule always is.
    """

    known: Rulebook
    active: Rulebook
    report_unused: bool

    def apply(self, diagnostics: Sequence[Diagnostic], file: str, source: Source | None) -> list[Diagnostic]:
        """The findings of `file` that its comments leave, and those about the comments."""
        suppressions = find_suppressions(source) if source and source.origin is None else ()
        meant = {s: self._means(s) for s in suppressions}
        kept, unused = apply_suppressions(diagnostics, [(s, ids) for s, ids in meant.items() if ids])
        active = {rule.id for rule in self.active.rules}
        if UNUSED_SUPPRESSION not in active:
            return kept
        wrong = [self._finding(s, file, self._problem(s)) for s, ids in meant.items() if not ids]
        if self.report_unused:
            wrong += [self._finding(s, file) for s in unused if meant[s] <= active]
        return kept + wrong

    def _means(self, suppression: Suppression) -> frozenset[str]:
        """The ids that the comment names; none where it is wrong."""
        if suppression.problem:
            return frozenset()
        try:
            return self.known.ids(suppression.key)
        except RuleError:
            return frozenset()

    def _problem(self, suppression: Suppression) -> str:
        """What is wrong with a comment that names no rule."""
        if suppression.problem:
            return suppression.problem
        try:
            self.known.get(suppression.key)
        except RuleError as error:
            return str(error)
        return f"`{suppression.key}` means no rule"

    def _finding(self, suppression: Suppression, file: str, problem: str | None = None) -> Diagnostic:
        rule = self.known.get(UNUSED_SUPPRESSION)
        unused = rule.render_message({"rule": suppression.key})
        return Diagnostic(
            rule=rule.id,
            name=rule.name,
            severity=Severity(rule.severity),
            verdict=None,
            message=f"suppression without effect: {problem}" if problem else unused,
            file=file,
            span=suppression.span,
            label=rule.label,
            help=None if problem else rule.render_help({}),
        )

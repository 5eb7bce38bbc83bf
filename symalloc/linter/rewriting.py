"""Applies fixes to a text: edits by line and column, several fixes in rounds, unified diffs."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from symalloc.linter.diagnostic import Diagnostic, Fix, Severity, TextEdit
from symalloc.program.span import Span

MAX_ROUNDS = 20
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
RelintText = Callable[[str], Sequence[Diagnostic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One file before and after fixes; `fixes` counts them."""

    file: str
    before: str
    after: str
    fixes: int

    def diff(self) -> str:
        """The change as a unified diff; empty where there is none."""
        before, after = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        lines = difflib.unified_diff(before, after, f"a/{self.file}", f"b/{self.file}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """Make `edits` in `text`; they must not overlap.  Inserted lines end as those of `text` do."""
    starts = _line_starts(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    for edit in sorted(edits, key=lambda e: (e.span.line, e.span.column), reverse=True):
        first = starts[edit.span.line - 1] + edit.span.column - 1
        last = min(starts[edit.span.end_line - 1] + edit.span.end_column - 1, len(text))
        text = text[:first] + edit.text.replace("\n", newline) + text[last:]
    return text


def rewrite(
    file: str, text: str, diagnostics: Sequence[Diagnostic], relint: RelintText, *, unsafe: bool
) -> Rewrite:
    """Fix `text` until nothing more can be fixed: in each round the fixes that do not touch each other.

    `relint` gives the findings, with fixes, in a text.  A round that does not leave fewer findings, or
    brings new ones, is taken back and only its first fix tried.
    """
    before, count = text, 0
    for _ in range(MAX_ROUNDS):
        chosen = _compatible(diagnostics, unsafe)
        result = _round(text, diagnostics, chosen, relint)
        if result is None and len(chosen) > 1:
            chosen = chosen[:1]
            result = _round(text, diagnostics, chosen, relint)
        if result is None:
            break
        text, diagnostics = result
        count += len(chosen)
    return Rewrite(file=file, before=before, after=text, fixes=count)


def improves(
    before: Iterable[Diagnostic], after: Iterable[Diagnostic], target: Diagnostic | None = None
) -> bool:
    """True where findings went away and no new error or warning came; with `target`, one of its kind.

    Findings are told apart by their kinds: lines move, and messages quote sizes.
    """
    old, new = Counter(d.kind for d in before), Counter(d.kind for d in after)
    worse = Counter(d.kind for d in after if d.severity is not Severity.NOTE)
    if any(count > old[kind] for kind, count in worse.items()):
        return False
    if target is not None:
        return new[target.kind] < old[target.kind]
    return new.total() < old.total()


def _round(
    text: str, diagnostics: Sequence[Diagnostic], fixes: Sequence[Fix], relint: RelintText
) -> tuple[str, Sequence[Diagnostic]] | None:
    """The text and findings after `fixes`; None where there are none or they do no good."""
    if not fixes:
        return None
    changed = apply_edits(text, [edit for fix in fixes for edit in fix.edits])
    found = relint(changed)
    return (changed, found) if improves(diagnostics, found) else None


def _compatible(diagnostics: Iterable[Diagnostic], unsafe: bool) -> list[Fix]:
    """The first fix of each finding, less those that touch the same text as one before."""
    chosen: list[Fix] = []
    for diagnostic in diagnostics:
        fix = diagnostic.fix
        if fix is None or not (fix.safe or unsafe):
            continue
        if not any(_overlap(a.span, b.span) for other in chosen for a in other.edits for b in fix.edits):
            chosen.append(fix)
    return chosen


def _overlap(a: Span, b: Span) -> bool:
    """True where they share text, or are the same place."""
    first, second = sorted((a, b), key=lambda s: (s.line, s.column))
    end, start = (first.end_line, first.end_column), (second.line, second.column)
    return end > start or (first.line, first.column) == start


def _line_starts(text: str) -> list[int]:
    """Offsets of the lines, as Python counts them, and of the end."""
    return [match.start() for match in _LINE.finditer(text)] + [len(text)]

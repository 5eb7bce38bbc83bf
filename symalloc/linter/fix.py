"""Fixes are proposed, tried on a copy of the text, linted again, and only then offered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from symalloc.linter.diagnostic import Diagnostic, Fix, Report
from symalloc.linter.fix_apply import apply_edits, improves
from symalloc.linter.fix_context import FixContext
from symalloc.linter.fix_guard import insert_assertion
from symalloc.linter.fix_remove import remove_kill, remove_suppression
from symalloc.linter.fix_source import Script, parse_script
from symalloc.linter.fix_storage import grow_storage
from symalloc.linter.linter import Linter
from symalloc.program.model import Program
from symalloc.program.reading import AS_IS, FileResult
from symalloc.prover.domain import Domain

__all__ = ["FIXERS", "Relint", "with_fixes"]

Fixer = Callable[[FixContext], Fix | None]
Change = tuple[str, str]  # a file, and what it would hold
Relint = Callable[[Sequence[Change]], Sequence[Sequence[Diagnostic]]]

# what rules name in `fixes`
FIXERS: Mapping[str, Fixer] = {
    "grow-storage": grow_storage,
    "insert-assertion": insert_assertion,
    "remove-kill": remove_kill,
    "remove-suppression": remove_suppression,
}
MAX_CANDIDATES = 64  # per file: each is read and linted again


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A fix not yet tried: what it fixes, and the text it makes."""

    diagnostic: Diagnostic
    fix: Fix
    text: str

    @property
    def change(self) -> Change:
        """The file and its new text."""
        return self.diagnostic.file, self.text


def with_fixes(report: Report, readings: Mapping[str, FileResult], linter: Linter, relint: Relint) -> Report:
    """`report` with the fixes that were tried and found good.

    `readings` are those of the files that have findings; `relint` gives the findings in each of some texts,
    each taken as the contents of a file.
    """
    by_file = {file: [d for d in report if d.file == file] for file in readings}
    candidates = [
        candidate
        for file, reading in readings.items()
        for candidate in islice(_candidates(by_file[file], reading, linter), MAX_CANDIDATES)
    ]
    good: dict[int, list[Fix]] = {}
    for candidate in _proved_good(by_file, candidates, relint):
        good.setdefault(id(candidate.diagnostic), []).append(candidate.fix)
    diagnostics = (replace(d, fixes=tuple(good[id(d)])) if id(d) in good else d for d in report)
    return replace(report, diagnostics=tuple(diagnostics)) if good else report


def _candidates(
    diagnostics: Sequence[Diagnostic], reading: FileResult, linter: Linter
) -> Iterator[_Candidate]:
    source = reading.source
    script = parse_script(source) if source and source.origin is None else None
    if source is None or script is None:
        return
    for diagnostic in diagnostics:
        for fixer in _fixers(diagnostic, script, linter):
            domain = Domain(assumptions=linter.assume)
            context = FixContext(
                diagnostic=diagnostic,
                program=_program(diagnostic, reading),
                script=script,
                prover=linter.prover,
                domain=domain,
            )
            fix = fixer(context)
            if fix is not None:
                yield _Candidate(diagnostic=diagnostic, fix=fix, text=apply_edits(source.text, fix.edits))


def _fixers(diagnostic: Diagnostic, script: Script, linter: Linter) -> Iterator[Fixer]:
    """The fixers of the finding's rule, where it points into the script."""
    if diagnostic.span is None or diagnostic.span.file != script.file:
        return
    for name in linter.rulebook.get(diagnostic.rule).fixes:
        if name in FIXERS:
            yield FIXERS[name]


def _program(diagnostic: Diagnostic, reading: FileResult) -> Program | None:
    return next((p for p in reading.programs if p.name == diagnostic.module and p.stage == AS_IS), None)


def _proved_good(
    before: Mapping[str, Sequence[Diagnostic]], candidates: Sequence[_Candidate], relint: Relint
) -> Iterator[_Candidate]:
    """The candidates after which the finding is gone and nothing new has come; each text is linted once."""
    changes = list(dict.fromkeys(c.change for c in candidates))
    after = dict(zip(changes, relint(changes), strict=True)) if changes else {}
    for candidate in candidates:
        diagnostic = candidate.diagnostic
        if improves(before[diagnostic.file], after[candidate.change], diagnostic):
            outcome = "always valid" if diagnostic.verdict else "gone"
            yield replace(candidate, fix=replace(candidate.fix, outcome=outcome))

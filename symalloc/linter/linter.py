"""The linter: checks what was read, file by file, and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import msgspec

from symalloc.linter.diagnostic import CANNOT_BE_READ, Diagnostic, Fix, LintSummary, Report, Severity
from symalloc.linter.engine import check
from symalloc.linter.lint_options import LintOptions, matches_file, parse_assumptions
from symalloc.linter.suppressions import apply_suppressions, find_suppressions
from symalloc.program.ir import Origin, Program
from symalloc.program.reading import AS_IS, FileResult, ReadProblem
from symalloc.program.source_map import NumberedSpan
from symalloc.program.span import Source, Span
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.rulebook.book import load_rules


def fresh_findings(
    found: Sequence[Diagnostic], earlier: Sequence[Sequence[Diagnostic]], sources: Mapping[str, Source]
) -> list[Diagnostic]:
    """The findings of a stage that none of the `earlier` stages had.

    One is a repetition where its kind is the same, and the message is, or the place in the user's file,
    or the constraint and the variable that is bound; and where all of these but the constraint differ,
    as far as an earlier stage had more findings of that constraint than are recognised.
    """
    seen = {sign for stage in earlier for one in stage for sign in _signs(one, sources)}
    known = [not seen.isdisjoint(_signs(one, sources)) for one in found]
    renamed: Counter[object] = Counter()
    for stage in earlier:
        renamed |= Counter((one.kind, one.constraint) for one in stage if one.constraint is not None)
    renamed.subtract((one.kind, one.constraint) for one, old in zip(found, known, strict=True) if old)
    fresh = []
    for one, old in zip(found, known, strict=True):
        if not old and renamed[one.kind, one.constraint] > 0:
            renamed[one.kind, one.constraint] -= 1
        elif not old:
            fresh.append(one)
    return fresh


def _signs(diagnostic: Diagnostic, sources: Mapping[str, Source]) -> list[object]:
    """The signs of a finding: two findings that share one are the same."""
    kind, span = diagnostic.kind, diagnostic.span
    found: list[object] = [(kind, "message", diagnostic.message)]
    if span and span.file in sources and sources[span.file].origin is None:
        found.append((kind, "place", span))
    if diagnostic.constraint is not None and diagnostic.binds:
        found.append((kind, "binds", diagnostic.binds, diagnostic.constraint))
    return found


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

    def finished(
        self, fixes: Mapping[int, tuple[Fix, ...]] | None = None, *, settled: bool = True
    ) -> LintedFile:
        """The same without what tries fixes: with the `fixes` that help, by the `id` of the diagnostic.

        `settled`: these were tried to the end.
        """
        good = fixes or {}
        found = (replace(d, candidates=(), fixes=good.get(id(d), ())) for d in self.report)
        return replace(self, report=replace(self.report, diagnostics=tuple(found)), settled=settled)


def report_of(linted: Sequence[LintedFile], *, seconds: float, skipped: int) -> Report:
    """Return the report on some files; it took `seconds`, and `skipped` files hold no module."""
    joined = Report.joined([one.report for one in linted])
    return replace(joined, summary=replace(joined.summary, seconds=seconds), skipped=skipped)


def stored(linted: LintedFile) -> bytes:
    """Return finished findings as JSON; `restored` makes them again."""
    return msgspec.json.encode(linted)


def restored(data: bytes) -> LintedFile:
    """Return the findings that `stored` was given; raises msgspec.ValidationError for anything else."""
    return msgspec.json.decode(data, type=LintedFile)


NOT_UNDERSTOOD = "SYM904"

_CANNOT_BE = "cannot be "


class Linter:
    """Checks what was read, one file after the other."""

    def __init__(self, options: LintOptions = LintOptions(), prover: Prover | None = None) -> None:  # noqa: B008
        """Load the rules; raises UsageError for rules, rule names or assumptions that make no sense."""
        self.options, self.prover = options, prover or Prover()
        self.rulebook = load_rules(options.rules)
        self.assume = parse_assumptions(options.assume)
        self._active = self.rulebook.select(options.select, options.ignore)
        self._ignored = {
            pattern: frozenset().union(*map(self.rulebook.ids, keys))
            for pattern, keys in options.per_file_ignores.items()
        }

    @property
    def checked_rules(self) -> frozenset[str]:
        """The ids of the rules that are checked; none where only some stages of a module are read."""
        rules = self._active.rules if self.options.reports_unused else ()
        return frozenset(rule.id for rule in rules)

    def lint(self, reading: FileResult) -> LintedFile:
        """Check what one file gave; its findings are sorted, and hold what tries their fixes."""
        started = perf_counter()
        source = reading.source
        sources = {} if source is None else {source.file: source}
        summary = LintSummary()
        found = [self._unreadable(problem) for problem in reading.problems]
        complete = not found and self.options.reports_unused
        found += apply_suppressions(
            self._checked(reading, sources, summary),
            find_suppressions(source) if source and source.origin is None else (),
            file=reading.file,
            known=self.rulebook,
            active=self._active,
            report_unused=complete,
        )
        kept = sorted(filter(self._wanted, map(self._strict, found)), key=_order)
        shown = {s.file for d in kept for s in (d.span, *(label.span for label in d.labels)) if s}
        summary.seconds = perf_counter() - started
        report = Report(
            diagnostics=tuple(kept),
            summary=summary,
            files=(reading.file,),
            sources={file: text for file, text in sources.items() if file in shown},
        )
        return LintedFile(report=report, symbols=_symbols(reading.programs))

    # -- checking ------------------------------------------------------------------------------------------

    def _checked(
        self, reading: FileResult, sources: dict[str, Source], summary: LintSummary
    ) -> list[Diagnostic]:
        """The findings of all stages of a file's modules; one that an earlier stage had is not repeated.

        The scripts that they point into are added to `sources`, and what was counted to `summary`.
        """
        stages: list[list[Diagnostic]] = []
        found: list[Diagnostic] = []
        for program in reading.programs:
            result = check(program, self._active, self.prover, assume=self.assume, budget=self.options.budget)
            summary.add(result.summary)
            text, spans = _printed(program, result)
            if text:
                sources[text.file] = text
            placed = [_placed(d, program, reading, spans) for d in result]
            found += fresh_findings(placed, stages, sources)
            stages.append(placed)
        summary.functions = len({(one.name, name) for one in reading.programs for name in one.functions})
        return found

    def _unreadable(self, problem: ReadProblem) -> Diagnostic:
        rule = self.rulebook.get(CANNOT_BE_READ)
        known = problem.message.startswith(_CANNOT_BE)
        what = problem.message.removeprefix(_CANNOT_BE) if known else f"read: {problem.message}"
        return Diagnostic.of_rule(
            rule,
            {"file": problem.file, "problem": what},
            file=problem.file,
            module=problem.module or "",
            span=problem.span,
            help=problem.hint,
        )

    # -- filters -------------------------------------------------------------------------------------------

    def _wanted(self, diagnostic: Diagnostic) -> bool:
        if diagnostic.rule == CANNOT_BE_READ:
            return True  # what was not verified is never passed over
        file = diagnostic.file
        return not any(
            diagnostic.rule in ids and matches_file(file, pattern) for pattern, ids in self._ignored.items()
        )

    def _strict(self, diagnostic: Diagnostic) -> Diagnostic:
        unsure = diagnostic.rule == NOT_UNDERSTOOD or (
            diagnostic.verdict is Verdict.RUNTIME_CHECK and diagnostic.reason is not None
        )
        return replace(diagnostic, severity=Severity.ERROR) if self.options.strict and unsure else diagnostic


def _symbols(programs: Iterable[Program]) -> Mapping[str, tuple[Origin, ...]]:
    """The symbols of all functions, and where they get their values, in order."""
    found: dict[str, set[Origin]] = {}
    for function in (function for program in programs for function in program.functions.values()):
        for name, origin in function.symbols.items():
            found.setdefault(name, set()).add(origin)
    return {name: tuple(sorted(origins, key=str)) for name, origins in found.items()}


def _printed(program: Program, found: Report) -> tuple[Source | None, Mapping[Span, Span]]:
    """The script that TVM prints for `program`, under a name of its own, and the places of what was `found`.

    None where nothing was found, or spans point into a file.
    """
    source = program.source
    further = ((*(label.span for label in d.labels), *(one.span for one in d.dependents)) for d in found)
    spans = [span for d, more in zip(found, further, strict=True) for span in (d.span, *more) if span]
    if source is None or isinstance(source, Source) or not spans:
        return None, {}
    text, places = source.located(spans)
    when = "as TVM prints it" if program.stage == AS_IS else f"after {program.stage}"
    file = f"{text.file} ({program.name} {when})"
    return replace(text, file=file), {span: there._replace(file=file) for span, there in places.items()}


def _placed(
    diagnostic: Diagnostic, program: Program, reading: FileResult, places: Mapping[Span, Span]
) -> Diagnostic:
    """The finding with its file, module and stage, its numbered spans looked up in `places`."""

    def place(span: Span | None) -> Span | None:
        return places.get(span) if isinstance(span, NumberedSpan) else span

    labels = ((label, place(label.span)) for label in diagnostic.labels)
    return replace(
        diagnostic,
        file=diagnostic.file or reading.file,
        module=diagnostic.module or program.name,
        stage=None if program.stage == AS_IS else program.stage,
        span=place(diagnostic.span),
        labels=tuple(replace(label, span=span) for label, span in labels if span is not None),
        dependents=tuple(replace(one, span=place(one.span)) for one in diagnostic.dependents),
    )


def _order(diagnostic: Diagnostic) -> tuple[object, ...]:
    span = diagnostic.span
    place = (span.file, span.line, span.column) if span else ("", 0, 0)
    return (diagnostic.severity.rank, *place, diagnostic.rule)

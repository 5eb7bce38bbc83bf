"""The linter: checks what was read, file by file, and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

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


class Deduplicator:
    """Tells the new findings of a stage from those that earlier stages had."""

    def __init__(self) -> None:
        self._seen: set[object] = set()
        self._constraints: Counter[object] = Counter()

    def fresh(self, diagnostics: Sequence[Diagnostic], sources: Mapping[str, Source]) -> list[Diagnostic]:
        """The findings of the next stage that none before had.

        One is a repetition where rule, module and function are the same, and the message is, or the place in
        the user's file, or the constraint and the variable that is bound; and where all of these but the
        constraint differ, as far as earlier stages had more findings of that constraint than are recognised.
        """
        known = [not self._seen.isdisjoint(_keys(d, sources)) for d in diagnostics]
        recognised = Counter(_constraint(d) for d, old in zip(diagnostics, known, strict=True) if old)
        renamed = self._constraints - recognised
        fresh = []
        for diagnostic, old in zip(diagnostics, known, strict=True):
            key = _constraint(diagnostic)
            if not old and renamed[key] > 0:
                renamed[key] -= 1
            elif not old:
                fresh.append(diagnostic)
        self._note(diagnostics, sources)
        return fresh

    def _note(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, Source]) -> None:
        self._seen.update(key for d in diagnostics for key in _keys(d, sources))
        self._constraints |= Counter(_constraint(d) for d in diagnostics if d.constraint is not None)


def _keys(diagnostic: Diagnostic, sources: Mapping[str, Source]) -> Iterable[object]:
    """The dedup keys of a finding: two findings that share one are the same."""
    common = (diagnostic.rule, diagnostic.module, diagnostic.function)
    yield (*common, "message", diagnostic.message)
    span = diagnostic.span
    if span and span.file in sources and sources[span.file].origin is None:
        yield (*common, "place", span)
    if diagnostic.constraint is not None and diagnostic.binds:
        yield (*common, "binds", diagnostic.binds, diagnostic.constraint)


def _constraint(diagnostic: Diagnostic) -> object:
    return diagnostic.rule, diagnostic.module, diagnostic.function, diagnostic.constraint


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


NOT_UNDERSTOOD = "SYM904"

_CANNOT_BE = "cannot be "


class Linter:
    """Checks readings one by one and adds up the report.

    `symbols` holds the symbols of all functions checked so far, and where they get their values.
    """

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
        self._forget()

    def _forget(self) -> None:
        self._diagnostics: list[Diagnostic] = []
        self._files: dict[str, None] = {}
        self._sources: dict[str, Source] = {}
        self._summary = LintSummary()
        self._started = perf_counter()
        self.symbols: dict[str, set[Origin]] = {}

    def fresh(self) -> Linter:
        """Return a linter with the same options, rules and prover, which has checked nothing yet."""
        other = copy(self)
        other._forget()
        return other

    @property
    def checked_rules(self) -> frozenset[str]:
        """The ids of the rules that are checked; none where only some stages of a module are read."""
        rules = self._active.rules if self.options.reports_unused else ()
        return frozenset(rule.id for rule in rules)

    def add(self, reading: FileResult) -> tuple[Diagnostic, ...]:
        """Check what one file gave; return its findings, sorted."""
        self._files[reading.file] = None
        if reading.source:
            self._sources[reading.source.file] = reading.source
        found = [self._unreadable(problem) for problem in reading.problems]
        complete = not found and self.options.reports_unused
        source = reading.source
        found += apply_suppressions(
            self._checked(reading),
            find_suppressions(source) if source and source.origin is None else (),
            file=reading.file,
            known=self.rulebook,
            active=self._active,
            report_unused=complete,
        )
        kept = sorted(filter(self._wanted, map(self._strict, found)), key=_order)
        self._diagnostics += kept
        return tuple(kept)

    def report(self, fixes: Mapping[int, tuple[Fix, ...]] | None = None) -> Report:
        """Report everything so far; `fixes` by the `id` of the diagnostic that `add` gave."""
        offered = fixes or {}
        spans = (s for d in self._diagnostics for s in (d.span, *(x.span for x in d.labels)) if s)
        shown = {span.file for span in spans}
        return Report(
            diagnostics=tuple(
                replace(d, candidates=(), fixes=offered.get(id(d), ())) for d in self._diagnostics
            ),
            summary=replace(self._summary, seconds=perf_counter() - self._started),
            files=tuple(self._files),
            sources={file: source for file, source in self._sources.items() if file in shown},
        )

    def linted(
        self, fixes: Mapping[int, tuple[Fix, ...]] | None = None, *, settled: bool = True
    ) -> LintedFile:
        """The report, see `report`, with the symbols found so far, each with its origins in order.

        `settled`: the `fixes` were tried to the end.
        """
        ordered = ((name, sorted(origins, key=str)) for name, origins in self.symbols.items())
        symbols = {name: tuple(found) for name, found in ordered}
        return LintedFile(report=self.report(fixes), symbols=symbols, settled=settled)

    # -- checking ------------------------------------------------------------------------------------------

    def _checked(self, reading: FileResult) -> list[Diagnostic]:
        """The findings of all stages of a file's modules; one that an earlier stage had is not repeated."""
        deduplicator = Deduplicator()
        found: list[Diagnostic] = []
        functions: set[tuple[str, str]] = set()
        counted = self._summary.functions
        for program in reading.programs:
            result = check(program, self._active, self.prover, assume=self.assume, budget=self.options.budget)
            self._summary.add(result.summary)
            text, spans = _printed(program, result)
            if text:
                self._sources[text.file] = text
            functions.update((program.name, name) for name in program.functions)
            self._note_symbols(program)
            placed = [_placed(d, program, reading, spans) for d in result]
            found += deduplicator.fresh(placed, self._sources)
        self._summary.functions = counted + len(functions)  # one that several stages have counts once
        return found

    def _note_symbols(self, program: Program) -> None:
        for function in program.functions.values():
            for name, origin in function.symbols.items():
                self.symbols.setdefault(name, set()).add(origin)

    def _unreadable(self, problem: ReadProblem) -> Diagnostic:
        rule = self.rulebook.get(CANNOT_BE_READ)
        known = problem.message.startswith(_CANNOT_BE)
        what = problem.message.removeprefix(_CANNOT_BE) if known else f"read: {problem.message}"
        message = rule.render_message({"file": problem.file, "problem": what})
        return Diagnostic.of_rule(
            rule,
            message,
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


def _printed(program: Program, found: Iterable[Diagnostic]) -> tuple[Source | None, Mapping[Span, Span]]:
    """The script that TVM prints for `program`, under a name of its own, and the places of what was `found`.

    None where nothing was found, or spans point into a file.
    """
    source = program.source
    spans = [span for diagnostic in found for span in _spans_of(diagnostic) if span]
    if source is None or isinstance(source, Source) or not spans:
        return None, {}
    text, places = source.located(spans)
    when = "as TVM prints it" if program.stage == AS_IS else f"after {program.stage}"
    file = f"{text.file} ({program.name} {when})"
    return replace(text, file=file), {span: there._replace(file=file) for span, there in places.items()}


def _spans_of(diagnostic: Diagnostic) -> Iterator[Span | None]:
    yield diagnostic.span
    yield from (label.span for label in diagnostic.labels)
    yield from (one.span for one in diagnostic.dependents)


def _placed(
    diagnostic: Diagnostic, program: Program, reading: FileResult, places: Mapping[Span, Span]
) -> Diagnostic:
    """The finding with its file, module and stage, its numbered spans looked up in `places`."""
    span = diagnostic.span
    return replace(
        diagnostic,
        file=diagnostic.file or reading.file,
        module=diagnostic.module or program.name,
        stage=None if program.stage == AS_IS else program.stage,
        span=_looked_up(span, places) if span else None,
        labels=tuple(
            replace(label, span=there)
            for label in diagnostic.labels
            if (there := _looked_up(label.span, places)) is not None
        ),
        dependents=tuple(
            replace(one, span=_looked_up(one.span, places)) if one.span else one
            for one in diagnostic.dependents
        ),
    )


def _looked_up(span: Span, places: Mapping[Span, Span]) -> Span | None:
    """The place of a numbered span, None where it has none; a span of a text is its own place."""
    return places.get(span) if isinstance(span, NumberedSpan) else span


def _order(diagnostic: Diagnostic) -> tuple[object, ...]:
    span = diagnostic.span
    place = (span.file, span.line, span.column) if span else ("", 0, 0)
    return (diagnostic.severity.rank, *place, diagnostic.rule)

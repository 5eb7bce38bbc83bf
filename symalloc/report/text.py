"""Findings for a person: the source line, carets, counterexample, precondition, what to do."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from symalloc.linter.diagnostic import Diagnostic, Fix, LintSummary, Report, Severity
from symalloc.program.span import Span
from symalloc.prover.verdict import Verdict, counterexample_title
from symalloc.report.cells import visible
from symalloc.report.excerpt import Row, Underline, excerpt

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
FRAME = "bold blue"
SECONDARY = "bold blue"
NARROWEST = 40
WIDEST = 240  # cells of a source line where there is no terminal
NO_BREAK = "\xa0"


def render_text(
    report: Report,
    *,
    width: int | None = None,
    colour: bool = False,
    quiet: bool = False,
    statistics: bool = False,
) -> str:
    """Render the whole report.  `width` in cells (None: no terminal); `quiet` leaves the summary out."""
    parts = [text_of(d, report, width=width) for d in report]
    if not quiet:
        parts.append(Text(_broken(render_summary(report), width) + "\n"))
    text = _terminal(parts) if colour else "".join(p.plain for p in parts)
    return text + render_statistics(report) if statistics else text


def text_of(diagnostic: Diagnostic, report: Report, *, width: int | None = None) -> Text:
    """Render one finding, followed by an empty line; styled, `.plain` is the text without colours."""
    return _DiagnosticText(diagnostic, report, width).render()


def render_summary(report: Report) -> str:
    """Render the closing line: constraints by verdict, findings that --fix mends, files not read."""
    failed, skipped = len(report.unread), report.skipped
    fixable = sum(any(f.safe for f in d.fixes) for d in report)
    more = sum(bool(d.fixes) for d in report) - fixable
    nothing = failed > 0 and report.summary.functions == 0
    remarks = [
        (fixable, f"{fixable} fixable with --fix"),
        (more, f"{more}{' more' if fixable else ''} with --fix --unsafe-fixes"),
        (0 if nothing else failed, f"{_files(failed)} could not be read in full"),
        (skipped, f"{_files(skipped)} without Relax modules skipped"),
        *((1, remark) for remark in report.known_remarks),
    ]
    counts = f"nothing verified: {_files(failed)} could not be read." if nothing else _counts(report.summary)
    return f"{counts} {', '.join(text for count, text in remarks if count)}".rstrip()


def render_statistics(report: Report) -> str:
    """A line per rule that found something, then the time and who decided."""
    found = Counter((d.rule, d.name) for d in report)
    lines = [f"{count:>6}  {rule} {name}" for (rule, name), count in sorted(found.items())]
    decided = ", ".join(f"{who} {count:,}" for who, count in sorted(report.summary.by_solver.items()))
    s = report.summary
    checked = f"{s.functions:,} functions in {len(report.files):,} files, {s.seconds:.2f} s"
    lines.append(f"{checked}; decided by: {decided}" if decided else checked)
    return "\n".join(lines) + "\n"


def _broken(text: str, width: int | None, indent: int = 0, margin: int = 0) -> str:
    """`text`, which begins behind `indent` cells, broken at `width`; further lines begin behind `margin`."""
    if width is None or len(text) + indent <= width:
        return text
    lines = wrap(
        text,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).lstrip()


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


def _counts(s: LintSummary) -> str:
    checks = "check" if s.runtime_check == 1 else "checks"
    constraints = "constraint" if s.constraints == 1 else "constraints"
    indices = "index of a kernel depends" if s.data_dependent == 1 else "indices of kernels depend"
    return (
        f"{s.constraints:,} {constraints}: {s.always_valid:,} always valid, {s.always_invalid:,} always "
        f"invalid, {s.runtime_check:,} run-time {checks} ({s.guarded:,} guarded), {s.unknown:,} unknown."
        + (f" {s.data_dependent:,} {indices} on data." if s.data_dependent else "")
    )


def _terminal(parts: Sequence[Text]) -> str:
    """The parts with terminal colours, whatever standard output is."""
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", no_color=False, legacy_windows=False
    )
    for part in parts:
        console.print(part, soft_wrap=True, end="", highlight=False, markup=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class _DiagnosticText:
    """Renders one finding: header, excerpts, remarks; all share one gutter."""

    def __init__(self, diagnostic: Diagnostic, report: Report, width: int | None) -> None:
        self.diagnostic, self.report = diagnostic, report
        self.style = STYLES[diagnostic.severity]
        self.width = None if width is None else max(width, NARROWEST)
        spans = [label.span for label in diagnostic.labels]
        if diagnostic.span:
            spans.append(diagnostic.span)
        self.gutter = max((len(str(s.end_line)) for s in spans), default=1)

    @property
    def room(self) -> int:
        """Cells right of the gutter."""
        return (self.width or WIDEST) - self.gutter - 3

    def render(self) -> Text:
        if self.diagnostic.dependents:
            return Text("\n").join([self.header().append_text(self.place()), Text(""), Text("")])
        lines = [self.header(), *self.body(), *self.remarks(), Text("")]
        return Text("\n").join([*lines, Text("")])

    def header(self) -> Text:
        d = self.diagnostic
        header = Text().append(f"{d.severity}[{d.rule}]", self.style)
        header.append(f": {self.wrapped(visible(d.message), len(header) + 2)}", "bold")
        return header

    def place(self) -> Text:
        """The place at the end of a finding that is shown on one line."""
        d = self.diagnostic
        where = f"{d.span.file}:{d.span.line}:{d.span.column}" if d.span else d.file or d.module
        return Text().append(" --> ", FRAME).append(visible(where)) if where else Text()

    def body(self) -> Iterator[Text]:
        span = self.diagnostic.span
        if span is None:
            yield from self.without_source()
            return
        files = dict.fromkeys([span.file, *(label.span.file for label in self.diagnostic.labels)])
        for file in files:
            marks = [m for m in self.marks() if m.span.file == file]
            yield self.arrow(
                "-->" if file == span.file else ":::", span if file == span.file else marks[0].span
            )
            yield from self.source(file, marks)

    def arrow(self, sign: str, span: Span) -> Text:
        line = Text().append(f"{' ' * self.gutter}{sign} ", FRAME)
        return line.append(visible(f"{span.file}:{span.line}:{span.column}"))

    def marks(self) -> list[Underline]:
        """The labels and the main mark; the main one last, so that carets win where they overlap."""
        d = self.diagnostic
        marks = [Underline(span=x.span, text=x.text, style=SECONDARY, glyph="-") for x in d.labels]
        if d.span:
            marks.append(Underline(span=d.span, text=d.label, style=self.style, glyph="^"))
        return marks

    def source(self, file: str, marks: Sequence[Underline]) -> Iterator[Text]:
        source = self.report.sources.get(file)
        rows = excerpt(source.text, marks, self.room) if source else []
        if rows:
            yield self.bar(None, Text(""))
        for row in rows:
            yield self.row(row)

    def row(self, row: Row) -> Text:
        if row.gap:
            gap = Text().append(f"{'...':<{self.gutter + 3}}", FRAME).append_text(row.text)
            gap.rstrip()
            return gap
        return self.bar(row.number, row.text)

    def bar(self, number: int | None, text: Text) -> Text:
        left = Text().append(f"{number or '':>{self.gutter}} |", FRAME)
        if text.plain.strip():
            left.append(" ").append_text(text)
        left.rstrip()
        return left

    def without_source(self) -> Iterator[Text]:
        """The file, the module and the function, for a finding that has no place in a text."""
        d = self.diagnostic
        place = [d.file or d.module or "module"]
        if d.function:
            place.append(f"function `{d.function}`" + (f" of `{d.module}`" if d.module and d.file else ""))
        yield Text().append(f"{' ' * self.gutter}--> ", FRAME).append(visible(", ".join(place)))

    def remarks(self) -> Iterator[Text]:
        for title, text in self.remark_texts():
            yield self.remark(title, text)

    def remark(self, title: str, text: str) -> Text:
        line = Text().append(f"{' ' * self.gutter} = ", FRAME).append(f"{title}:", "bold")
        return line.append(f" {self.wrapped(visible(text), len(line) + 1)}")

    def wrapped(self, text: str, indent: int) -> str:
        """`text` broken at the terminal's width, the further lines indented below the first."""
        kept = text.replace("fix (", f"fix{NO_BREAK}(")
        return _broken(kept, self.width, indent, self.gutter + 5).replace(NO_BREAK, " ")

    def remark_texts(self) -> Iterator[tuple[str, str]]:
        d = self.diagnostic
        if d.stage:
            yield "note", f"found after {d.stage}"
        if d.path:
            yield "on paths where", d.path
        if d.counterexample is not None:
            yield _counterexample(d)
        if d.precondition:
            yield "holds only when", f"{d.precondition}   ({_enforcement(d)})"
        if d.reason:
            yield "not decided", d.reason
        yield from (("note", note) for note in d.notes)
        if d.help and not d.fixes:
            yield "help", d.help
        yield from (("help", _offer(fix)) for fix in d.fixes)


def _counterexample(d: Diagnostic) -> tuple[str, str]:
    consequence = f"  ->  {d.consequence}" if d.consequence else ""
    if not d.counterexample:
        return "for every input", d.consequence or "the rule is broken"
    binding = ", ".join(f"{name} = {value}" for name, value in d.counterexample.items())
    every = "   (every shape without an empty dimension fails)" if d.verdict is Verdict.ALWAYS_INVALID else ""
    return counterexample_title(d.smallest), f"{binding}{consequence}{every}"


def _enforcement(d: Diagnostic) -> str:
    where = f" in `{d.function}`" if d.function else ""
    return f"a guard{where} enforces it" if d.guarded else f"no guard{where} enforces it"


def _offer(fix: Fix) -> str:
    outcome = f", re-linted: {fix.outcome}" if fix.outcome else ""
    return f"{fix.title}   fix ({'safe' if fix.safe else 'unsafe'}){outcome}"

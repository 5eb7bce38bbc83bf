"""Findings for a person: the source line, carets, counterexample, precondition, what to do; and rules: what
each demands, why, what breaks it, what does not.
"""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from symalloc.linter.diagnostic import Diagnostic, LintSummary, Report, Severity
from symalloc.program.span import Span, split_lines
from symalloc.prover.domain import Verdict, counterexample_title
from symalloc.report.quantities import binding_text, broken
from symalloc.rulebook.rule import SITE_KINDS, BadExample, Rule, Rulebook
from symalloc.shown import counted

TAB = 4
ELLIPSIS = "…"


def visible(text: str) -> str:
    """`text` with those characters escaped that a terminal would obey (controls, bidirectional overrides)."""
    return text if text.isprintable() else "".join(map(_shown, text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The cells [left, right) of an excerpt that are shown; `right` is None where nothing is cut."""

    left: int = 0
    right: int | None = None

    def clip(self, cell: int) -> int:
        """Return the position of the cell `cell` of a line, from 0; cells cut off map to the nearest edge."""
        inside = cell if self.right is None else min(cell, self.right)
        return max(inside - self.left, 0)


class CellLine:
    """A line as it is printed: a piece of text for each character, and the cells at which they start."""

    __slots__ = ("_pieces", "starts")

    def __init__(self, line: str) -> None:
        self._pieces: list[str] = []
        self.starts = [0]
        for character in line:
            tab = character == "\t"
            self._pieces.append(" " * (TAB - self.starts[-1] % TAB) if tab else _shown(character))
            self.starts.append(self.starts[-1] + cell_len(self._pieces[-1]))

    @property
    def width(self) -> int:
        """Cells in all."""
        return self.starts[-1]

    def cell(self, column: int) -> int:
        """The cell where the character at `column` (from 1) starts; columns behind the end lie one apart."""
        index = max(column - 1, 0)
        last = len(self.starts) - 1
        return self.starts[index] if index <= last else self.width + index - last

    def cut(self, window: Window) -> str:
        """The part of the line inside `window`, an ellipsis in place of what is cut off."""
        right = self.width if window.right is None else min(window.right, self.width)
        before, behind = window.left > 0, self.width > right
        first, last = window.left + before, right - behind
        text, end = "", first
        for piece, start, stop in zip(self._pieces, self.starts, self.starts[1:], strict=False):
            if first <= start and stop <= last:  # the half of a wide character is a space
                text += " " * (start - end) + piece
                end = stop
        if not text.strip():
            return ""
        dots = " " * (last - end) + ELLIPSIS if behind else ""
        return f"{ELLIPSIS * before}{text}{dots}".rstrip()


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    if character in "\r\n\x0b\x0c\u2028\u2029" or unicodedata.category(character) == "Zs":
        return " "
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"


CONTEXT = 8  # cells kept to the left of the first mark where lines are cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Underline:
    """A stretch of source to underline; `style` is a rich style, `glyph` the character that underlines."""

    span: Span
    text: str
    style: str
    glyph: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of an excerpt: the line number (None for underlines), and what stands right of the gutter."""

    number: int | None
    text: Text
    gap: bool = False


def excerpt(text: str, marks: Sequence[Underline], width: int | None = None) -> list[Row]:
    """The rows that show `marks` in `text`, cut to `width` cells; none where no mark lies in the text.

    A mark over several lines is shown on the first of them.
    """
    lines = split_lines(text)
    inside = [m for m in marks if 1 <= m.span.line <= m.span.end_line <= len(lines)]
    marked = {m.span.line for m in inside}
    numbers = sorted(marked | {n + 1 for n in marked if n + 2 in marked})  # a gap of one line is filled
    shown = {n: CellLine(lines[n - 1]) for n in numbers}
    placed = {n: [_stretch(m, line) for m in inside if m.span.line == n] for n, line in shown.items()}
    room = None if width is None else max(width, CONTEXT + 1)
    window = _window(shown.values(), [one for row in placed.values() for one in row], room)
    rows: list[Row] = []
    for number, line in shown.items():
        if rows and number - 1 not in shown:
            rows.append(Row(number=None, text=Text(), gap=True))
        rows.append(Row(number=number, text=Text(line.cut(window))))
        underlined = [one.within(window) for one in placed[number]]
        rows += (Row(number=None, text=row) for row in _underline_rows(underlined, room))
    return rows


def _stretch(mark: Underline, line: CellLine) -> _Stretch:
    """The cells of the line that a mark begins on."""
    end = line.cell(mark.span.end_column) if mark.span.end_line == mark.span.line else line.width
    return _Stretch(line.cell(mark.span.column), end, mark.glyph, mark.style, visible(mark.text))


def _window(lines: Iterable[CellLine], placed: Sequence[_Stretch], room: int | None) -> Window:
    """The cells to show, so that the first mark is among them; all where there is room."""
    if room is None or all(line.width <= room for line in lines):
        return Window()
    first, last = min(one.start for one in placed), max(one.end for one in placed)
    left = 0 if last <= room or first <= room // 4 else first - CONTEXT
    return Window(left=left, right=left + room)


class _Stretch(NamedTuple):
    """Cells [start, end) of an excerpt that are filled with `glyph`, and what is said of them."""

    start: int
    end: int
    glyph: str
    style: str
    text: str

    def within(self, window: Window) -> _Stretch:
        """The same in a window, at least one cell."""
        start = window.clip(self.start)
        return self._replace(start=start, end=max(window.clip(self.end), start + 1))


def _underline_rows(placed: Sequence[_Stretch], room: int | None) -> Iterator[Text]:
    """The underlines, the last label beside them where it fits, the others below, each hung on a bar.

    Where marks overlap, carets win over dashes.
    """
    if not placed:
        return
    order = sorted(placed, key=lambda p: p.start, reverse=True)
    rightmost = order[0]
    fits = room is None or rightmost.end + 1 + cell_len(rightmost.text) <= room
    inline = fits and all(p.end <= rightmost.start for p in order[1:])
    row = _filled(sorted(order, key=lambda p: p.glyph == "^"))
    if inline and rightmost.text:
        row.append(f" {rightmost.text}", rightmost.style)
    yield row
    hanging = [p for p in order[1 if inline else 0 :] if p.text]
    bars = [p._replace(end=p.start + 1, glyph="|") for p in reversed(hanging)]
    if bars:
        yield _filled(bars)
    for item in hanging:
        row = _filled([bar for bar in bars if bar.start < item.start])
        row.append(" " * (item.start - cell_len(row.plain)))
        row.append(item.text, item.style)
        yield row


def _filled(stretches: Sequence[_Stretch]) -> Text:
    """A row with the glyphs of all stretches, the later ones over those before them."""
    glyphs = [" "] * max((one.end for one in stretches), default=0)
    for one in stretches:
        glyphs[one.start : one.end] = one.glyph * (one.end - one.start)
    row = Text("".join(glyphs))
    for one in stretches:
        row.stylize(one.style, one.start, one.end)
    return row


STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
FRAME = SECONDARY = "bold blue"
_HIGHLIGHTS = {
    r"(?m)^[^\s:]+:": "bold",
    r"\(proved[^)]*\)|\bpasses\b|always-valid|(?m:^(nothing grew|the same as the unplanned).*)": "green",
    r"at no shape|always-invalid|\brefuses\b|\bmore: |(?m:^(DIFFERENT|REFUSED).*)": STYLES[Severity.ERROR],
    r"not proved|undecided|unknown|runtime-check|falls back|UNDETERMINED": STYLES[Severity.WARNING],
}
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
        summary = render_summary(report)
        parts.append(Text(summary if width is None else broken(summary, width)).append("\n"))
    text = _coloured(parts) if colour else "".join(p.plain for p in parts)
    return text + render_statistics(report) if statistics else text


def highlighted(text: str) -> str:
    """An answer of a verb in colours: what a section is about, what is proved, what fails, what is open."""
    styled = Text(text)
    for pattern, style in _HIGHLIGHTS.items():
        styled.highlight_regex(pattern, style)
    return _coloured([styled])


def _coloured(parts: Sequence[Text]) -> str:
    """The text with its colours, whatever standard output is."""
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", no_color=False, legacy_windows=False
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=True, end="", highlight=False, markup=False)
    return captured.get()


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
        (0 if nothing else failed, f"{counted(failed, 'file')} could not be read in full"),
        (skipped, f"{counted(skipped, 'file')} without Relax modules skipped"),
        *((1, remark) for remark in report.known_remarks),
    ]
    counts = (
        f"nothing verified: {counted(failed, 'file')} could not be read."
        if nothing
        else _counts(report.summary)
    )
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


def _counts(s: LintSummary) -> str:
    indices = "index of a kernel depends" if s.data_dependent == 1 else "indices of kernels depend"
    return (
        f"{counted(s.constraints, 'constraint')}: {s.always_valid:,} always valid, {s.always_invalid:,} "
        f"always invalid, {counted(s.runtime_check, 'run-time check')} ({s.guarded:,} guarded), "
        f"{s.unknown:,} unknown." + (f" {s.data_dependent:,} {indices} on data." if s.data_dependent else "")
    )


class _DiagnosticText:
    """Renders one finding: header, excerpts, remarks; all share one gutter."""

    def __init__(self, diagnostic: Diagnostic, report: Report, width: int | None) -> None:
        self.diagnostic, self.report = diagnostic, report
        d, self.style = diagnostic, STYLES[diagnostic.severity]
        self.width = None if width is None else max(width, NARROWEST)
        # the main one last, so that carets win where they overlap
        self.marks = [Underline(span=x.span, text=x.text, style=SECONDARY, glyph="-") for x in d.labels]
        if d.span:
            self.marks.append(Underline(span=d.span, text=d.label, style=self.style, glyph="^"))
        self.gutter = max((len(str(m.span.line)) for m in self.marks), default=1)

    def render(self) -> Text:
        d = self.diagnostic
        header = Text().append(f"{d.severity}[{d.rule}]", self.style)
        header.append(f": {self.wrapped(visible(d.message), len(header) + 2)}", "bold")
        lines = [header, *([] if d.is_brief else [*self.body(), *self.remarks()])]
        where = f"{d.span.file}:{d.span.line}:{d.span.column}" if d.span else d.file or d.module
        if d.is_brief and where:
            header.append(" --> ", FRAME).append(visible(where))
        return Text("\n").join([*lines, Text(""), Text("")])

    def body(self) -> Iterator[Text]:
        d = self.diagnostic
        if d.span is None:
            yield Text().append(f"{' ' * self.gutter}--> ", FRAME).append(visible(self.outside()))
            return
        for file in dict.fromkeys([d.span.file, *(m.span.file for m in self.marks)]):
            marks = [m for m in self.marks if m.span.file == file]
            sign, at = ("-->", d.span) if file == d.span.file else (":::", marks[0].span)
            line = Text().append(f"{' ' * self.gutter}{sign} ", FRAME)
            yield line.append(visible(f"{file}:{at.line}:{at.column}"))
            source, room = self.report.sources.get(file), (self.width or WIDEST) - self.gutter - 3
            rows = excerpt(source.text, marks, room) if source else []
            yield from map(self.row, [Row(number=None, text=Text()), *rows] if rows else [])

    def row(self, row: Row) -> Text:
        number = f"{'...':<{self.gutter + 2}}" if row.gap else f"{row.number or '':>{self.gutter}} |"
        line = Text().append(number, FRAME)
        if row.text.plain.strip():
            line.append(" ").append_text(row.text)
        line.rstrip()
        return line

    def outside(self) -> str:
        """The file, the module and the function, for a finding that has no place in a text."""
        d = self.diagnostic
        inside = f" of `{d.module}`" if d.module and d.file else ""
        function = f", function `{d.function}`{inside}" if d.function else ""
        return f"{d.file or d.module or 'module'}{function}"

    def remarks(self) -> Iterator[Text]:
        for title, text in self.remark_texts():
            line = Text().append(f"{' ' * self.gutter} = ", FRAME).append(f"{title}:", "bold")
            yield line.append(f" {self.wrapped(visible(text), len(line) + 1)}")

    def wrapped(self, text: str, indent: int) -> str:
        """`text` broken at the terminal's width, the further lines indented below the first."""
        kept = text.replace("fix (", f"fix{NO_BREAK}(")
        wide = len(text) + indent if self.width is None else self.width
        return broken(kept, wide, indent, self.gutter + 5).replace(NO_BREAK, " ")

    def remark_texts(self) -> Iterator[tuple[str, str]]:
        d = self.diagnostic
        if d.stage:
            yield "note", f"found after {d.stage}"
        if d.path:
            yield "on paths where", d.path
        if d.counterexample:
            consequence = f"  ->  {d.consequence}" if d.consequence else ""
            shapes = "at which the kernel gets there" if d.of_kernel else "without an empty dimension"
            every = f"   (every shape {shapes} fails)" if d.verdict is Verdict.ALWAYS_INVALID else ""
            yield counterexample_title(d.smallest), f"{binding_text(d.counterexample)}{consequence}{every}"
        elif d.counterexample is not None:
            yield "at every shape", d.consequence or "the rule is broken"
        if d.precondition:
            where = f" in `{d.function}`" if d.function else ""
            guard = f"{'a' if d.guarded else 'no'} guard{where} enforces it"
            yield "holds only when", f"{d.precondition}   ({guard})"
        if d.reason:
            yield "not decided", d.reason
        yield from (("note", note) for note in d.notes)
        if d.help and not d.fixes:
            yield "help", d.help
        for fix in d.fixes:
            outcome = f", re-linted: {fix.outcome}" if fix.outcome else ""
            yield "help", f"{fix.title}   fix ({'safe' if fix.safe else 'unsafe'}){outcome}"


SHOWN = (
    *("id", "name", "severity", "severity_at_runtime", "severity_when_empty"),
    *("site", "constraint", "relation", "summary", "fixes", "references"),
)


def render_rule_table(book: Rulebook, *, colour: bool = False, width: int | None = None) -> str:
    """Render one rule a line: id, name, severity, summary; unbounded where `width` (columns) is None."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=max((len(r.id) for r in book.rules), default=1))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for rule in book.rules:
        table.add_row(rule.id, rule.name, severity_text(rule), rule.summary.replace("`", ""))
    return render_parts([table], colour=colour, width=width or 1000)


def render_parts(parts: Iterable[Table | Text], *, colour: bool, width: int) -> str:
    """Render `parts` one below the other for a terminal of `width` columns, without blanks at line ends."""
    stream = StringIO()
    console = Console(file=stream, force_terminal=colour, no_color=not colour, width=width, highlight=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def render_rule_json(book: Rulebook) -> str:
    """Render an array of objects, one a rule, without documentation and examples."""
    return json.dumps([{name: getattr(rule, name) for name in SHOWN} for rule in book.rules], indent=2) + "\n"


def severity_text(rule: Rule) -> str:
    """`error`, or `error/note` where a finding that depends on the shape is milder; `-` for none.

    A third one, as in `error/error/note`, is that of a finding that takes an empty tensor.
    """
    if rule.severity_when_empty is not None:
        return f"{rule.severity}/{rule.severity_at_runtime or '-'}/{rule.severity_when_empty}"
    if rule.severity_at_runtime == rule.severity:
        return rule.severity
    return f"{rule.severity}/{rule.severity_at_runtime or '-'}"


WIDTH = 100


def render_rule_page(
    rule: Rule, *, every: bool = False, colour: bool = False, width: int | None = None
) -> str:
    """Render the page of `rule` for a terminal of `width` columns; `every`: all examples, not one a kind."""
    return render_parts(_parts(rule, every), colour=colour, width=min(width or WIDTH, WIDTH))


def _parts(rule: Rule, every: bool) -> Iterator[Text]:
    yield Text.assemble(
        (f"{rule.id} {rule.name}", "bold"),
        f" ({severity_text(rule)})\n",
        (f"at: {SITE_KINDS[rule.site].description}\n", "dim"),
        ("must hold: " if rule.constraint else "looked for: ", "dim"),
        (rule.constraint or rule.relation or "", "cyan"),
    )
    yield Text()
    for paragraph in rule.doc.split("\n\n"):  # on one line, to be wrapped anew
        pieces = re.split(r"(`[^`]*`)", " ".join(paragraph.split()))
        yield Text.assemble(*((piece, "cyan" if piece.startswith("`") else "") for piece in pieces))
        yield Text()
    for bad in rule.bad if every else rule.bad[:1]:
        yield from _example(f"Found: {bad.title}", bad.module, rule)
        yield from _answer(rule, bad)
        yield Text()
    for good in rule.good if every else rule.good[:1]:
        yield from _example(f"Fine: {good.title}", good.module, rule)
        yield Text()
    yield from _footer(rule, every)


def _example(title: str, module: str, rule: Rule) -> Iterator[Text]:
    yield Text(title, style="bold")
    code = Syntax("", "python", theme="ansi_dark", background_color="default").highlight(module.strip())
    code.rstrip()
    for line in code.split("\n", allow_blank=True):
        yield Text("    ", no_wrap=True, overflow="ignore").append_text(line)


def _answer(rule: Rule, bad: BadExample) -> Iterator[Text]:
    """The answer to a bad example, as far as the rule states it (and its test checks it)."""
    expect = bad.expect
    if expect.message:
        milder = rule.severity_at_runtime if expect.verdict == "runtime-check" else None
        severity = expect.severity or milder or rule.severity
        yield Text.assemble((f"{severity}[{rule.id}]", "bold"), f": {expect.message}")
    if expect.verdict:
        yield Text(f"  = verdict: {expect.verdict}")
    if expect.counterexample is not None:
        yield Text(f"  = counterexample: {binding_text(expect.counterexample)}")
    if expect.precondition:
        yield Text(f"  = holds only when: {expect.precondition}")


def _footer(rule: Rule, every: bool) -> Iterator[Text]:
    hidden = 0 if every else max(len(rule.bad) - 1, 0) + max(len(rule.good) - 1, 0)
    if hidden:
        yield Text(
            f"{hidden} more example{'s' if hidden > 1 else ''}: symalloc explain {rule.id} --all", style="dim"
        )
    if rule.fixes:
        yield Text(f"Offered fixes (--fix): {', '.join(rule.fixes)}")
    for reference in rule.references:  # `apache/tvm#17322` as a link
        address = re.sub(r"^([\w.-]+/[\w.-]+)#(\d+)$", r"https://github.com/\1/issues/\2", reference)
        yield Text(f"See {address}")
    yield Text(f"Allow one finding: # symalloc: allow({rule.id})", style="dim")

"""Excerpts of source: the lines that marks point at, underlined, with what is said of them.

Marks on one line are underlined there; a mark over several lines is drawn as a bracket in the margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.text import Text

from symalloc.program.span import Span, split_lines
from symalloc.report.cells import CellLine, Window, visible

CONTEXT = 8  # cells kept to the left of the first mark where lines are cut
HEAD, TAIL = 3, 2  # lines shown at either end of a mark over many lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Underline:
    """A stretch of source to underline; `style` is a rich style, `glyph` the character that underlines."""

    span: Span
    text: str
    style: str
    glyph: str

    @property
    def is_block(self) -> bool:
        """True where it covers more than one line."""
        return self.span.end_line > self.span.line


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of an excerpt: the line number (None for underlines), and what stands right of the gutter."""

    number: int | None
    text: Text
    gap: bool = False


def excerpt(text: str, marks: Sequence[Underline], width: int | None = None) -> list[Row]:
    """The rows that show `marks` in `text`, cut to `width` cells; none where no mark lies in the text."""
    lines = split_lines(text)
    inside = [m for m in marks if 1 <= m.span.line <= m.span.end_line <= len(lines)]
    return list(_Excerpt(lines, inside, width).rows()) if inside else []


class _Excerpt:
    """Lays out one excerpt.  Invariant: `blocks[i]` owns column i of the margin."""

    def __init__(self, lines: Sequence[str], marks: Sequence[Underline], width: int | None) -> None:
        self.marks = marks
        self.blocks = [m for m in marks if m.is_block]
        self.shown = {n: CellLine(lines[n - 1]) for n in _shown_lines(marks)}
        self.margin = len(self.blocks) + 1 if self.blocks else 0
        self.room = None if width is None else max(width - self.margin, CONTEXT + 1)
        self.window = self._window()

    def rows(self) -> Iterator[Row]:
        previous: int | None = None
        for number, line in self.shown.items():
            if previous is not None and number > previous + 1:
                yield Row(number=None, text=self._margin(number, opening=False), gap=True)
            previous = number
            body = self._margin(number, opening=True)
            body.append(line.cut(self.window))
            yield Row(number=number, text=body)
            yield from self._block_starts(number, line)
            yield from self._underlines(number, line)
            yield from self._block_ends(number, line)

    def _window(self) -> Window:
        if self.room is None or all(line.width <= self.room for line in self.shown.values()):
            return Window()
        cells = [self.shown[m.span.line].cell(m.span.column) for m in self.marks]
        ends = [self.shown[m.span.end_line].cell(m.span.end_column) for m in self.marks]
        first = min(cells)
        left = 0 if max(ends) <= self.room or first <= self.room // 4 else first - CONTEXT
        return Window(left=left, right=left + self.room)

    def _margin(self, number: int, *, opening: bool) -> Text:
        """The margin beside line `number`; `opening` draws the corner of blocks that start a line."""
        margin = Text()
        for block in self.blocks:
            if block.span.line < number <= block.span.end_line:
                margin.append("|", block.style)
            elif opening and block.span.line == number and self._opens_line(block):
                margin.append("/", block.style)
            else:
                margin.append(" ")
        if self.blocks:
            margin.append(" ")
        return margin

    def _opens_line(self, block: Underline) -> bool:
        line = self.shown[block.span.line]
        return line.blank_before(line.cell(block.span.column))

    def _block_starts(self, number: int, line: CellLine) -> Iterator[Row]:
        for slot, block in enumerate(self.blocks):
            if block.span.line == number and not self._opens_line(block):
                yield self._reach(slot, block, number, self.window.clip(line.cell(block.span.column)), "")

    def _block_ends(self, number: int, line: CellLine) -> Iterator[Row]:
        for slot, block in enumerate(self.blocks):
            if block.span.end_line == number:
                last = max(self.window.clip(line.cell(block.span.end_column)) - 1, 0)
                yield self._reach(slot, block, number, last, block.text)

    def _reach(self, slot: int, block: Underline, number: int, cell: int, label: str) -> Row:
        """A row that joins the margin column `slot` to `cell` of the line."""
        row = self._margin(number, opening=False)[: slot + 1]
        row.append("_" * (self.margin - slot - 1 + cell) + block.glyph, block.style)
        if label:
            row.append(f" {visible(label)}", block.style)
        return Row(number=None, text=row)

    def _underlines(self, number: int, line: CellLine) -> Iterator[Row]:
        placed = [
            _PlacedUnderline.of(mark, line, self.window)
            for mark in self.marks
            if not mark.is_block and mark.span.line == number
        ]
        for row in _underline_rows(placed, self.room):
            margin = self._margin(number + 1, opening=False)
            margin.append_text(row)
            yield Row(number=None, text=margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedUnderline:
    """A mark on one line, in cells of the excerpt: [start, end)."""

    mark: Underline
    start: int
    end: int

    @classmethod
    def of(cls, mark: Underline, line: CellLine, window: Window) -> _PlacedUnderline:
        start = window.clip(line.cell(mark.span.column))
        end = window.clip(line.cell(mark.span.end_column))
        return cls(mark=mark, start=start, end=max(end, start + 1))


def _shown_lines(marks: Sequence[Underline]) -> list[int]:
    """The numbers of the lines to show, in order; a gap of a single line is filled."""
    wanted: set[int] = set()
    for mark in marks:
        first, last = mark.span.line, mark.span.end_line
        whole = range(first, last + 1)
        wanted.update(whole if len(whole) <= HEAD + TAIL + 1 else (*whole[:HEAD], *whole[-TAIL:]))
    wanted |= {n + 1 for n in wanted if n + 2 in wanted}
    return sorted(wanted)


def _underline_rows(placed: Sequence[_PlacedUnderline], room: int | None) -> Iterator[Text]:
    """The underlines, the last label beside them where it fits, the others below, each hung on a bar."""
    if not placed:
        return
    order = sorted(placed, key=lambda p: p.start, reverse=True)
    rightmost = order[0]
    inline = all(p.end <= rightmost.start for p in order[1:]) and _fits(rightmost, room)
    row = _underline(order)
    if inline and rightmost.mark.text:
        row.append(f" {visible(rightmost.mark.text)}", rightmost.mark.style)
    yield row
    hanging = [p for p in order[1 if inline else 0 :] if p.mark.text]
    if hanging:
        yield _bars(hanging)
    for index, item in enumerate(hanging):
        row = _bars([p for p in hanging[index + 1 :] if p.start < item.start])
        row.append(" " * (item.start - cell_len(row.plain)))
        row.append(visible(item.mark.text), item.mark.style)
        yield row


def _fits(item: _PlacedUnderline, room: int | None) -> bool:
    return room is None or item.end + 1 + cell_len(item.mark.text) <= room


def _underline(placed: Sequence[_PlacedUnderline]) -> Text:
    """All underlines of a line; where marks overlap, carets win over dashes."""
    width = max(p.end for p in placed)
    glyphs = [" "] * width
    styles = [""] * width
    for item in sorted(placed, key=lambda p: p.mark.glyph == "^"):
        for cell in range(item.start, item.end):
            glyphs[cell], styles[cell] = item.mark.glyph, item.mark.style
    row = Text()
    for style, run in groupby(zip(glyphs, styles, strict=True), key=lambda cell: cell[1]):
        row.append("".join(glyph for glyph, _ in run), style)
    return row


def _bars(placed: Sequence[_PlacedUnderline]) -> Text:
    row = Text()
    for item in sorted(placed, key=lambda p: p.start):
        row.append(" " * (item.start - len(row.plain)))
        if item.start == len(row.plain):
            row.append("|", item.mark.style)
    return row

"""Converts between symalloc's spans, which count characters from 1, and the positions of the protocol.

The protocol counts lines and code units from 0: UTF-16 ones, where client and server do not agree on others.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from symalloc.program.span import Span

PositionEncoding: TypeAlias = Literal["utf-8", "utf-16", "utf-32"]
_LINE_END = re.compile(r"\r\n|\r|\n")


class TextPosition(NamedTuple):
    """A place between two characters: the line and the code unit in it, both from 0."""

    line: int
    unit: int


class TextPositions:
    """The lines of one text, and places in them.  Places behind the end of a line or the text move there."""

    def __init__(self, text: str, encoding: PositionEncoding = "utf-16") -> None:
        self.lines = _LINE_END.split(text)
        self._encoding = encoding

    def range_of(self, span: Span) -> tuple[TextPosition, TextPosition]:
        """The start and the end of `span`."""
        start = self.position(span.line, span.column)
        return start, max(start, self.position(span.end_line, span.end_column))

    def position(self, line: int, column: int) -> TextPosition:
        """The position in front of the character at `line` and `column`, both from 1."""
        if line > len(self.lines):
            line, column = len(self.lines), len(self.lines[-1]) + 1
        return TextPosition(line - 1, self._units(self.lines[line - 1][: column - 1]))

    def place(self, position: TextPosition) -> tuple[int, int]:
        """The line and column, both from 1, of the character behind `position`, or that it lies in."""
        if position.line >= len(self.lines):
            return len(self.lines), len(self.lines[-1]) + 1
        text = self.lines[position.line]
        if text.isascii() or self._encoding == "utf-32":
            return position.line + 1, min(position.unit, len(text)) + 1
        units = 0
        for column, character in enumerate(text, 1):
            units += self._units(character)
            if units > position.unit:
                return position.line + 1, column
        return position.line + 1, len(text) + 1

    def _units(self, text: str) -> int:
        """The number of code units of `text`."""
        if text.isascii() or self._encoding == "utf-32":
            return len(text)
        if self._encoding == "utf-16":
            return len(text) + sum(character > "\uffff" for character in text)
        return len(text.encode(errors="surrogatepass"))

"""Converts between symalloc's spans, which count characters from 1, and the positions of the protocol.

The protocol counts lines and code units from 0: UTF-16 ones, where client and server do not agree on others.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from lsprotocol.types import Position, Range

from symalloc.program.span import Span

PositionEncoding: TypeAlias = Literal["utf-8", "utf-16", "utf-32"]
_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
_LINE_END = re.compile(r"\r\n|\r|\n")


class TextPositions:
    """The lines of one text, and places in them.  Places behind the end of a line or the text move there."""

    def __init__(self, text: str, encoding: PositionEncoding = "utf-16") -> None:
        self.lines = _LINE_END.split(text)
        self._codec, self._unit = _CODECS[encoding]

    def range_of(self, span: Span) -> Range:
        """The start and the end of `span`."""
        start, end = self.position(span.line, span.column), self.position(span.end_line, span.end_column)
        return Range(start=start, end=max(start, end))

    def position(self, line: int, column: int) -> Position:
        """The position in front of the character at `line` and `column`, both from 1."""
        if line > len(self.lines):
            line, column = len(self.lines), len(self.lines[-1]) + 1
        return Position(line=line - 1, character=self._units(self.lines[line - 1][: column - 1]))

    def place(self, position: Position) -> tuple[int, int]:
        """The line and column, both from 1, of the character behind `position`, or that it lies in."""
        if position.line >= len(self.lines):
            return len(self.lines), len(self.lines[-1]) + 1
        text, units = self.lines[position.line], 0
        for column, character in enumerate(text, 1):
            units += self._units(character)
            if units > position.character:
                return position.line + 1, column
        return position.line + 1, len(text) + 1

    def _units(self, text: str) -> int:
        """The number of code units of `text`."""
        return len(text.encode(self._codec, "surrogatepass")) // self._unit

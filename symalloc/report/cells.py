"""A source line as a terminal shows it: tabs expanded, wide characters counted, controls escaped."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from rich.cells import cell_len

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
    """One line: its display text, and for each character (and the end) the cell at which it starts."""

    __slots__ = ("_pieces", "starts")

    def __init__(self, line: str) -> None:
        self._pieces: list[str] = []
        self.starts = [0]
        for character in line:
            piece = " " * (TAB - self.starts[-1] % TAB) if character == "\t" else _shown(character)
            self._pieces.append(piece)
            self.starts.append(self.starts[-1] + cell_len(piece))

    @property
    def width(self) -> int:
        """Cells in all."""
        return self.starts[-1]

    def cell(self, column: int) -> int:
        """The cell where the character at `column` (from 1) starts; columns behind the end lie one apart."""
        index = max(column - 1, 0)
        last = len(self.starts) - 1
        return self.starts[index] if index <= last else self.width + index - last

    def blank_before(self, cell: int) -> bool:
        """Return whether nothing but white space stands in front of `cell`."""
        return not self.cut(Window(right=cell)).strip(" " + ELLIPSIS)

    def cut(self, window: Window) -> str:
        """The part of the line inside `window`, an ellipsis in place of what is cut off."""
        right = window.right
        if not window.left and (right is None or self.width <= right):
            return "".join(self._pieces).rstrip()
        return self._cut(window.left, self.width if right is None else right)

    def _cut(self, left: int, right: int) -> str:
        """The cells [left, right); a wide character cut in half becomes a space."""
        shown: list[str] = []
        for piece, start in zip(self._pieces, self.starts, strict=False):
            end = start + cell_len(piece)
            if start >= left and end <= right:
                shown.append(piece)
            elif end > left and start < right:
                shown.append(" " * (min(end, right) - max(start, left)))
        if not "".join(shown).strip():
            return ""
        if left:
            shown = [ELLIPSIS, *_without_first_cell(shown)]
        if self.width > right:
            shown = [*reversed(_without_first_cell(shown[::-1])), ELLIPSIS]
        return "".join(shown).rstrip()


def _without_first_cell(pieces: list[str]) -> list[str]:
    """`pieces` less their first cell, and what takes no cell before it; a wide piece leaves spaces behind."""
    first = next((i for i, piece in enumerate(pieces) if cell_len(piece)), None)
    if first is None:
        return []
    return [" " * (cell_len(pieces[first]) - 1), *pieces[first + 1 :]]


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    if character in "\r\n\x0b\x0c\u2028\u2029" or unicodedata.category(character) == "Zs":
        return " "
    return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"

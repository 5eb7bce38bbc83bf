"""Source texts, and stretches of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

Thing = TypeVar("Thing")
SyntaxNode: TypeAlias = ast.expr | ast.stmt | ast.arg | ast.excepthandler | ast.keyword
_BREAK = re.compile("\r\n|\r|\n")


class Span(NamedTuple):
    """A stretch of one file: lines and columns count from 1, `end_column` is the column behind the last
    character.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def start(self) -> tuple[int, int]:
        """The line and the column of the first character."""
        return self.line, self.column

    @property
    def end(self) -> tuple[int, int]:
        """The line and the column behind the last character."""
        return self.end_line, self.end_column

    def meets(self, other: Span) -> bool:
        """True where the two share text, or begin at the same place."""
        first, second = sorted((self, other), key=lambda span: span.start)
        return self.file == other.file and (first.end > second.start or first.start == second.start)


def innermost(found: Iterable[Thing], span_of: Callable[[Thing], Span | None], place: Span) -> Thing | None:
    """The one whose text stands around `place`; of several the one that begins last."""
    spans = ((span_of(one), one) for one in found)
    around = [(s.start, one) for s, one in spans if s and s.start <= place.start and place.end <= s.end]
    return max(around, key=lambda each: each[0])[1] if around else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text a span points into: a user's file, or the script TVM prints for a module that has none.

    `origin` names the pass after which the text was printed; None where the text is the user's own file.
    """

    file: str
    text: str
    origin: str | None = None


def split_lines(text: str) -> list[str]:
    """The lines of `text` as Python's tokenizer counts them (form feeds do not end a line)."""
    return _BREAK.split(text)


def column_of(lines: Sequence[str], line: int, offset: int) -> int:
    """The column, from 1, of the character at byte `offset` of a line: `ast` counts bytes."""
    text = lines[line - 1] if line <= len(lines) else ""
    return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1


def span_of(file: str, lines: Sequence[str], node: SyntaxNode, end: ast.expr | None = None) -> Span:
    """The span of a syntax node of a text with these `lines`, or from `node` up to the end of `end`."""
    last = end or node
    end_line = last.end_lineno or last.lineno
    return Span(
        file=file,
        line=node.lineno,
        column=column_of(lines, node.lineno, node.col_offset),
        end_line=end_line,
        end_column=column_of(lines, end_line, last.end_col_offset or last.col_offset),
    )

"""Source texts, and stretches of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of one file: lines and columns count from 1, `end_column` is the column behind the last
    character.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text a span points into: a user's file, or the script TVM prints for a module that has none.

    `origin` names the pass after which the text was printed; None where the text is the user's own file.
    """

    file: str
    text: str
    origin: str | None = None

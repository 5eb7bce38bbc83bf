"""The script of a user, as fixes see it: the syntax tree, and spans of its nodes."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from symalloc.program.span import Source, Span, SyntaxNode, span_of


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScript:
    """A Python source and its syntax tree; `lines` are those that the tree counts."""

    file: str
    lines: tuple[str, ...]
    tree: ast.Module

    def span(self, node: SyntaxNode) -> Span:
        """The place of `node`, in characters (`ast` counts bytes)."""
        return span_of(self.file, self.lines, node)

    def call_at(self, span: Span) -> ast.Call | None:
        """The call that starts at `span`; of several the one that ends there too, or else the longest."""
        calls = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and _start(self.span(node)) == _start(span)
        ]
        exact = [call for call in calls if _end(self.span(call)) == _end(span)]
        return max(exact or calls, key=lambda call: _end(self.span(call)), default=None)

    def statement_at(self, span: Span) -> ast.stmt | None:
        """The innermost statement around `span`."""
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.stmt)
            and _start(self.span(node)) <= _start(span)
            and _end(span) <= _end(self.span(node))
        ]
        return max(around, key=lambda node: _start(self.span(node)), default=None)

    def line_start(self, line: int) -> Span:
        """The empty span in front of `line`."""
        return Span(file=self.file, line=line, column=1, end_line=line, end_column=1)

    def indent(self, line: int) -> str:
        """The white space that `line` starts with."""
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip())]

    def stands_alone(self, statement: ast.stmt) -> bool:
        """True where nothing else stands on the statement's lines (a comment may)."""
        span = self.span(statement)
        before = self.lines[span.line - 1][: span.column - 1]
        after = self.lines[span.end_line - 1][span.end_column - 1 :].strip()
        return not before.strip() and (not after or after.startswith("#"))


def parse_user_script(source: Source) -> UserScript | None:
    """Parse the script in `source`; None where it is no Python."""
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = tuple(source.text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return UserScript(file=source.file, lines=lines, tree=tree)


def _start(span: Span) -> tuple[int, int]:
    return span.line, span.column


def _end(span: Span) -> tuple[int, int]:
    return span.end_line, span.end_column

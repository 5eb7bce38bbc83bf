"""Fixes that take something away: a second kill, a suppression without effect."""

from __future__ import annotations

from dataclasses import replace

from symalloc.linter.diagnostic import Fix, TextEdit
from symalloc.linter.fix_context import FixContext
from symalloc.linter.suppress import find_suppressions
from symalloc.program.model import Kill
from symalloc.program.span import Source, Span

__all__ = ["remove_kill", "remove_suppression"]


def remove_kill(context: FixContext) -> Fix | None:
    """Delete the line of a kill whose variable is dead already."""
    span, kill = context.diagnostic.span, context.instruction()
    statement = context.script.statement_at(span) if span else None
    if statement is None or not isinstance(kill, Kill) or not context.script.stands_alone(statement):
        return None
    last = statement.end_lineno or statement.lineno
    lines = Span(file=context.script.file, line=statement.lineno, column=1, end_line=last + 1, end_column=1)
    return Fix(title="remove the second kill", edits=(TextEdit(span=lines, text=""),), safe=True)


def remove_suppression(context: FixContext) -> Fix | None:
    """Delete the rule from a suppression comment, and with the last rule the comment."""
    script, span = context.script, context.diagnostic.span
    found = find_suppressions(Source(file=script.file, text="\n".join(script.lines)))
    unused = next((s for s in found if s.span == span), None)
    if unused is None or unused.problem:
        return None
    others = [s.key for s in found if s.comment == unused.comment and s is not unused]
    edit = (
        _without_key(context, unused.comment, others) if others else _without_comment(context, unused.comment)
    )
    return Fix(title=f"remove `{unused.key}` from the comment", edits=(edit,), safe=True)


def _without_key(context: FixContext, comment: Span, others: list[str]) -> TextEdit:
    line = context.script.lines[comment.line - 1]
    start, end = line.index("(", comment.column), line.index(")", comment.column)
    span = replace(comment, column=start + 2, end_column=end + 1)
    return TextEdit(span=span, text=", ".join(others))


def _without_comment(context: FixContext, comment: Span) -> TextEdit:
    """Takes the white space in front along, and the line where nothing else stands on it."""
    code = context.script.lines[comment.line - 1][: comment.column - 1].rstrip()
    if code:
        return TextEdit(span=replace(comment, column=len(code) + 1), text="")
    return TextEdit(span=replace(comment, column=1, end_line=comment.line + 1, end_column=1), text="")

"""Makes the comment that allows a finding, where a suppression covers it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from symalloc.linter.diagnostic import CANNOT_BE_READ, Diagnostic, Fix, TextEdit
from symalloc.linter.suppressions import UNUSED_SUPPRESSION
from symalloc.linter.user_script import UserScript
from symalloc.program.span import Span

_ALLOWED = re.compile(r"#\s*symalloc\s*:\s*allow\s*\((?P<keys>[^()]*)\)")
_NEVER = frozenset({CANNOT_BE_READ, UNUSED_SUPPRESSION})  # these two are about reading, and about comments
_SILENT = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def allow_finding(diagnostic: Diagnostic, script: UserScript) -> Fix | None:
    """The comment that allows `diagnostic`, behind its statement or in front of it.

    A finding without a place in the script is allowed for its function, or else its module.  None where no
    comment can allow it.
    """
    if diagnostic.rule in _NEVER:
        return None
    span, rule = diagnostic.span, diagnostic.rule
    if span is not None and span.file == script.file:
        edit = _for_line(script, span.line, rule)
        where = "here"
    else:
        node = enclosing_definition(script, diagnostic.module, diagnostic.function)
        if node is None or not node.decorator_list:
            return None
        edit = _in_front(script, min(d.lineno for d in node.decorator_list), rule)
        where = f"in `{node.name}`"
    if edit is None:
        return None
    return Fix(title=f"allow {rule} {where} with a comment", edits=(edit,), safe=False)


def enclosing_definition(
    script: UserScript, module: str, function: str
) -> ast.FunctionDef | ast.ClassDef | None:
    """The `def` of `function` in the class `module`; the class, or the lone function, where it has none.

    A module whose name is not the only one of its kind is written `name:line`.
    """
    name, _, line = module.partition(":")
    for outer in ast.walk(script.tree):
        if not isinstance(outer, ast.ClassDef | ast.FunctionDef) or outer.name != name:
            continue
        if not line or str(outer.lineno) == line:
            inner = (node for node in outer.body if isinstance(node, ast.FunctionDef))
            return next((node for node in inner if node.name == function), outer)
    return None


def _for_line(script: UserScript, line: int, rule: str) -> TextEdit | None:
    """Allow `rule` in the statement around `line`."""
    lines = _statement_lines(script, line)
    if lines is None:
        return None
    first, last = lines
    text = script.lines[last - 1]
    comment = _comment_start(script, last)
    if comment is None:
        return _insertion(script, last, len(text.rstrip()) + 1, f"  # symalloc: allow({rule})")
    found = _ALLOWED.match(text, comment)
    if found is not None:
        return _insertion(script, last, found.end("keys") + 1, f", {rule}")
    return _in_front(script, first, rule)


def _in_front(script: UserScript, line: int, rule: str) -> TextEdit:
    """Allow `rule` by a comment on a line of its own."""
    return _insertion(script, line, 1, f"{script.indent(line)}# symalloc: allow({rule})\n")


def _insertion(script: UserScript, line: int, column: int, text: str) -> TextEdit:
    return TextEdit(
        span=Span(file=script.file, line=line, column=column, end_line=line, end_column=column), text=text
    )


def _statement_lines(script: UserScript, line: int) -> tuple[int, int] | None:
    """The first and last line of the logical line around `line`."""
    first: int | None = None
    for token in _tokens(script):
        if token.type == tokenize.NEWLINE and first is not None:
            if first <= line <= token.end[0]:
                return first, token.end[0]
            first = None
        elif first is None and token.type not in _SILENT:
            first = token.start[0]
    return None


def _comment_start(script: UserScript, line: int) -> int | None:
    """The index of the character that begins the comment on `line`."""
    comments = (t for t in _tokens(script) if t.type == tokenize.COMMENT and t.start[0] == line)
    return next((token.start[1] for token in comments), None)


def _tokens(script: UserScript) -> Iterator[tokenize.TokenInfo]:
    yield from tokenize.generate_tokens(io.StringIO("\n".join(script.lines)).readline)

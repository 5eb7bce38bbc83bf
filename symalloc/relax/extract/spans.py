"""Finds the bindings of a function in a text: by the spans TVM keeps on calls, else by the syntax tree.

TVM gives spans to calls only, and loses them in many passes.  The rest is found by walking the statements of
the function's `def` in step with its bindings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache

from tvm import relax

from symalloc.program.span import Source, Span, span_of
from symalloc.relax.ir_types import Node, VarNode

NOWHERE: tuple[None, str] = (None, "")


class Places:
    """Tells where the bindings of one function stand, asked in their order; this one has no text."""

    @property
    def definition(self) -> Span | None:
        """The `def` line."""
        return None

    @property
    def result(self) -> Span | None:
        """The value that the function returns."""
        return None

    def of(self, var: VarNode, value: Node) -> tuple[Span | None, str]:
        """The span of a binding, and its text in one line."""
        return NOWHERE

    def branch(self, *, taken: bool) -> AbstractContextManager[None]:
        """While entered, bindings are those of a branch of the If asked for last."""
        return nullcontext()


NO_PLACES = Places()


class ScriptText:
    """A text with its syntax tree, from which the places of functions are taken.

    `module` is the name of the class whose functions are meant, or the line of its `class` (or, for a
    function that stands alone, of its `def`).  `trust_spans`: whether the spans on TVM's calls point into
    this very text.
    """

    def __init__(self, source: Source, module: str | int, *, trust_spans: bool) -> None:
        self.file = source.file
        self.lines = source.text.split("\n")
        self.trust_spans = trust_spans
        self._definitions = _definitions(source.text, module)

    def places(self, function: str) -> Places:
        """The places of the Relax function of that name; none where the text has no such `def`."""
        node = self._definitions.get(function)
        return NO_PLACES if node is None else _ScriptPlaces(self, node)

    def span(self, node: ast.stmt | ast.expr, end: ast.expr | None = None) -> Span:
        """The span of a syntax node, or from `node` up to the end of `end`."""
        return span_of(self.file, self.lines, node, end)

    def text(self, span: Span) -> str:
        """The text at a span, in one line."""
        if not 1 <= span.line <= span.end_line <= len(self.lines):
            return ""
        if span.line == span.end_line:
            return self.lines[span.line - 1][span.column - 1 : span.end_column - 1]
        first = self.lines[span.line - 1][span.column - 1 :]
        middle = self.lines[span.line : span.end_line - 1]
        last = self.lines[span.end_line - 1][: span.end_column - 1]
        return re.sub(r"\s+", " ", " ".join([first, *middle, last])).strip()


def _definitions(text: str, module: str | int) -> Mapping[str, ast.FunctionDef]:
    """The functions of a module by name; without a class `module`, those of all classes and of the text."""
    tree = _parsed(text)
    holders = _standing_at(tree, module) if isinstance(module, int) else _named(tree, module)
    found: dict[str, ast.FunctionDef] = {}
    for node in (node for body in holders for node in body):
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, node)
    return found


@lru_cache(maxsize=1)
def _parsed(text: str) -> ast.Module:
    """The syntax tree, kept for the next module of the same file; empty where the text is no Python."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def _standing_at(tree: ast.Module, line: int) -> list[list[ast.stmt]]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(lineno=at) if at == line:
                return [node.body]
            case ast.FunctionDef(lineno=at) if at == line:
                return [[node]]
    return []


def _named(tree: ast.Module, name: str) -> list[list[ast.stmt]]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    ordered = [node for node in classes if node.name == name] or classes
    return [*(node.body for node in ordered), tree.body]


# -- statements --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement that makes bindings; `target` is the name bound, `_` for an expression statement."""

    node: ast.stmt
    target: str

    @property
    def is_if(self) -> bool:
        return isinstance(self.node, ast.If)

    @property
    def value(self) -> ast.expr | None:
        return getattr(self.node, "value", None)


def _statements(body: list[ast.stmt]) -> Iterator[_Statement]:
    for node in body:
        match node:
            case ast.With():
                yield from _statements(node.body)
            case ast.If():
                yield _Statement(node, "")
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
            ):
                if not _declares_only(node):
                    yield _Statement(node, name)
            case ast.Expr(value=ast.Call()):
                if not _declares_only(node):
                    yield _Statement(node, "_")
            case ast.Return(value=ast.expr()) | ast.FunctionDef():
                yield _Statement(node, getattr(node, "name", ""))


_DECLARATIONS = frozenset(
    {
        "func_attr",
        "func_ret_value",
        "func_ret_ty",
        "output",
        "int64",
        "int32",
        "bool",
        "dynamic",
        "var",
        "symbolic",
    }
)


def _declares_only(node: ast.Assign | ast.AnnAssign | ast.Expr) -> bool:
    """`m = T.int64()`, `cls = Module`, `R.output(…)`: no binding comes of these."""
    match node.value:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=name)):
            return name in _DECLARATIONS
        case ast.Name() if isinstance(node, ast.Assign):
            return any(isinstance(t, ast.Name) and t.id == "cls" for t in node.targets)
    return False


class _ScriptPlaces(Places):
    """The places of one function."""

    def __init__(self, text: ScriptText, node: ast.FunctionDef) -> None:
        self._text = text
        self._node = node
        self._statements = list(_statements(node.body))
        self._next = 0
        self._last_if: ast.If | None = None

    @property
    def definition(self) -> Span | None:
        """The `def` line, from the keyword to the end of the name."""
        start = self._text.span(self._node)
        end = start.column + len("def ") + len(self._node.name)
        return start._replace(end_line=start.line, end_column=end)

    @property
    def result(self) -> Span | None:
        """The value of the `return` that the function ends in."""
        last = self._node.body[-1]
        return self._text.span(last.value) if isinstance(last, ast.Return) and last.value else None

    def of(self, var: VarNode, value: Node) -> tuple[Span | None, str]:
        """See Places."""
        if type(value) is relax.If:
            return self._if_place()
        given = self._given_span(value)
        statement = self._advance(var.name, given)
        span = given or (None if statement is None else self._statement_span(statement))
        return (span, self._text.text(span)) if span is not None else NOWHERE

    @contextmanager
    def branch(self, *, taken: bool) -> Iterator[None]:
        """See Places."""
        saved = self._statements, self._next, self._last_if
        node = self._last_if
        body = [] if node is None else node.body if taken else node.orelse
        self._statements, self._next = list(_statements(body)), 0
        yield
        self._statements, self._next, self._last_if = saved

    def _given_span(self, value: Node) -> Span | None:
        span = getattr(value, "span", None) if self._text.trust_spans else None
        if span is None or not 1 <= span.line <= len(self._text.lines):
            return None
        return Span(
            file=self._text.file,
            line=span.line,
            column=span.column,
            end_line=span.end_line,
            end_column=span.end_column,
        )

    def _if_place(self) -> tuple[Span | None, str]:
        for i in range(self._next, len(self._statements)):
            node = self._statements[i].node
            if isinstance(node, ast.If):
                self._next, self._last_if = i + 1, node
                span = self._text.span(node, node.test)
                return span, self._text.text(span)
        self._last_if = None
        return NOWHERE

    def _advance(self, name: str, given: Span | None) -> _Statement | None:
        """The statement a binding belongs to; it stays the next where it names another (a nested call)."""
        found = self._by_line(given.line) if given is not None else self._by_name(name)
        if found is None:
            ahead = range(self._next, len(self._statements))
            found = next((i for i in ahead if not self._statements[i].is_if), None)
        if found is None:
            return None
        statement = self._statements[found]
        self._next = found + 1 if _names(statement.target, name) else found
        return statement

    def _by_line(self, line: int) -> int | None:
        for i in range(self._next, len(self._statements)):
            node = self._statements[i].node
            if node.lineno <= line <= (node.end_lineno or node.lineno):
                return i
        return None

    def _by_name(self, name: str) -> int | None:
        ahead = range(self._next, len(self._statements))
        if ahead and _names(self._statements[self._next].target, name):
            return self._next
        return next((i for i in ahead if self._statements[i].target == name), None)

    def _statement_span(self, statement: _Statement) -> Span:
        """The value, but all of `y = x`: there the value alone says little."""
        value, node = statement.value, statement.node
        whole = value is None or (isinstance(node, ast.Assign) and not isinstance(value, ast.Call))
        return self._text.span(node if whole or value is None else value)


def _names(target: str, name: str) -> bool:
    """Return whether a statement that binds `target` is one for a variable `name`.

    TVM prints a second `x` as `x_1`, and what is called `_12` as an expression statement.
    """
    if target == name:
        return True
    if target == "_":
        return name.strip("_0123456789") == ""
    return target.startswith(name) and target[len(name) :].lstrip("_").isdigit()

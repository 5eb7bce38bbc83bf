"""Source texts, stretches of them, and where the bindings of a function stand: in a text of its author's, or
in the script that TVM prints.

The statements of a `def` are walked in step with the bindings that come of it.  TVM prints a statement for
each binding; an author may write several calls in one.  A script is printed, and its statements are looked
for, when something is to be shown in it: until then a binding has a number for a span.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
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


class SourceMap:
    """Tells where the bindings of one function stand, asked in their order; this one knows of none."""

    definition: Span | None = None
    """The `def` line, from the keyword to the end of the name."""
    result: Span | None = None
    """The value that the function returns."""

    def span_of(self, name: str, given: Span | None = None) -> Span | None:
        """The span of what is bound to the variable `name`, "" for an If with its condition; `given` is the
        one that TVM has for it.
        """
        return None


NO_SPANS = SourceMap()


# -- numbers for spans ---------------------------------------------------------------------------------------

_DEFINITION, _RESULT = -1, -2
"""Numbers of what is no binding."""


class NumberedSpan(Span):
    """The place of a binding by its number in a function, from 0: a span when a script is printed."""

    __slots__ = ()

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.file


def numbered(function: str, number: int) -> NumberedSpan:
    """The place of binding `number`."""
    return tuple.__new__(NumberedSpan, (function, number, 0, 0, 0))  # twice as fast as to call it


class NumberedSpans(SourceMap):
    """Numbers the bindings of one function; `names` are those of what was bound so far."""

    def __init__(self, function: str) -> None:
        self.names: list[str] = []
        self._function = function
        self.definition = numbered(function, _DEFINITION)
        self.result = numbered(function, _RESULT)

    def span_of(self, name: str, given: Span | None = None) -> Span:
        """See SourceMap."""
        self.names.append(name)
        return numbered(self._function, len(self.names) - 1)


@dataclass(frozen=True)
class PrintedScript:
    """A script that TVM prints, under `file`, of a module as it is after the pass `origin`; it is printed
    when something is to be shown in it.

    `names` are those of what is bound in each function, in order.  With a text for `script` it pickles.
    """

    script: str | Callable[[], str]
    file: str
    origin: str
    names: Mapping[str, Sequence[str]]

    def located(self, spans: Iterable[Span]) -> tuple[Source, Mapping[Span, Span]]:
        """The text, and where in it each numbered span stands; without those that it does not have."""
        text = self.script if isinstance(self.script, str) else self.script()
        source = Source(file=self.file, text=text, origin=self.origin)
        lines = text.split("\n")
        wanted = [span for span in dict.fromkeys(spans) if isinstance(span, NumberedSpan)]
        found: dict[Span, Span | None] = {}
        for function in dict.fromkeys(span.function for span in wanted):
            node = _printed_definition(text, lines, function)
            if node is not None:
                statements = _StatementMap(self.file, lines, node)
                found[numbered(function, _DEFINITION)] = statements.definition
                found[numbered(function, _RESULT)] = statements.result
                for number, name in enumerate(self.names.get(function, ())):
                    found[numbered(function, number)] = statements.span_of(name)
        return source, {span: place for span in wanted if (place := found.get(span)) is not None}


def _printed_definition(text: str, lines: Sequence[str], name: str) -> ast.FunctionDef | None:
    """The `def` of a function, parsed alone: a kernel may be nested too deeply for Python's parser."""
    found = re.search(rf"^( *)def {re.escape(name)}\(", text, re.MULTILINE)
    if found is None:
        return None
    first, margin = text.count("\n", 0, found.start()), len(found[1])
    behind = (
        i for i in range(first + 1, len(lines)) if lines[i] and not lines[i].startswith(" " * (margin + 1))
    )
    above = "\n" * (first - 1) + ("if True:\n" if margin else "\n") if first else ""
    (holder,) = _parsed(above + "\n".join(lines[first : next(behind, len(lines))])).body or (None,)
    node = holder.body[0] if isinstance(holder, ast.If) else holder
    return node if isinstance(node, ast.FunctionDef) else None


def _parsed(text: str) -> ast.Module:
    """The syntax tree; empty where the text is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


_parsed_file = lru_cache(maxsize=1)(_parsed)  # for the next module of the same file


# -- the statements of a text --------------------------------------------------------------------------------


def script_maps(source: Source, module: str | int, *, trust_spans: bool) -> Callable[[str], SourceMap]:
    """The map of each Relax function of a text, by name; it knows nothing where the text has no such `def`.

    `module` is the name of the class whose functions are meant, or the line of its `class` (or, for a
    function that stands alone, of its `def`).  `trust_spans`: whether the spans that TVM has point into this
    very text.
    """
    lines, definitions = source.text.split("\n"), _definitions(source.text, module)

    def map_of(function: str) -> SourceMap:
        node = definitions.get(function)
        return NO_SPANS if node is None else _StatementMap(source.file, lines, node, trust=trust_spans)

    return map_of


def _definitions(text: str, module: str | int) -> Mapping[str, ast.FunctionDef]:
    """The functions of a module by name; without a class `module`, those of all classes and of the text."""
    tree = _parsed_file(text)
    holders = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    meant = [holder for holder in holders if module in (holder.lineno, holder.name)][:1]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    found: dict[str, ast.FunctionDef] = {}
    chosen: Sequence[ast.ClassDef | ast.FunctionDef | ast.Module] = meant or (*classes, tree)
    for holder in chosen:
        for node in (holder,) if isinstance(holder, ast.FunctionDef) else holder.body:
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, node)
    return found


class _Statement(NamedTuple):
    """A statement that makes bindings; `target` is the name bound, `_` for an expression statement, "" for an
    If.
    """

    node: ast.stmt
    target: str


def _statements(body: list[ast.stmt]) -> Iterator[_Statement]:
    for node in body:
        match node:
            case ast.With():
                yield from _statements(node.body)
            case ast.If():
                yield _Statement(node, "")
                yield from _statements([*node.body, *node.orelse])
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
                yield _Statement(node, getattr(node, "name", "return"))


_DECLARATIONS = frozenset(
    "func_attr func_ret_value func_ret_ty output int64 int32 bool dynamic var symbolic".split()  # noqa: SIM905
)


def _declares_only(node: ast.Assign | ast.AnnAssign | ast.Expr) -> bool:
    """`m = T.int64()`, `cls = Module`, `R.output(…)`: no binding comes of these."""
    match node.value:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=name)):
            return name in _DECLARATIONS
        case ast.Name() if isinstance(node, ast.Assign):
            return any(isinstance(t, ast.Name) and t.id == "cls" for t in node.targets)
    return False


class _StatementMap(SourceMap):
    """The map of the function `node`; spans that TVM has are taken where `trust`."""

    def __init__(
        self, file: str, lines: Sequence[str], node: ast.FunctionDef, *, trust: bool = False
    ) -> None:
        self._file, self._lines, self._trust = file, lines, trust
        self._statements, self._next = list(_statements(node.body)), 0
        start, last = self._span(node), node.body[-1]
        end = start.column + len("def ") + len(node.name)
        self.definition = start._replace(end_line=start.line, end_column=end)
        if isinstance(last, ast.Return) and last.value:
            self.result = self._span(last.value)

    def span_of(self, name: str, given: Span | None = None) -> Span | None:
        """See SourceMap."""
        trusted = given if self._trust and given and 1 <= given.line <= len(self._lines) else None
        found = self._find(name, trusted)
        if found is not None:
            self._next = found + 1 if _names(self._statements[found].target, name) else found
        if trusted is not None:
            return trusted._replace(file=self._file)
        return None if found is None else self._value(self._statements[found].node)

    def _span(self, node: ast.stmt | ast.expr, end: ast.expr | None = None) -> Span:
        return span_of(self._file, self._lines, node, end)

    def _find(self, name: str, given: Span | None) -> int | None:
        """The statement that a binding belongs to: one with a name of its own may stand for nested calls."""
        ahead = range(self._next, len(self._statements))
        if not name:
            return next((i for i in ahead if not self._statements[i].target), None)
        fitting: Iterator[int]
        if given is not None:
            ends = ((i, self._statements[i].node) for i in ahead)
            fitting = (i for i, n in ends if n.lineno <= given.line <= (n.end_lineno or n.lineno))
        elif ahead and _names(self._statements[self._next].target, name):
            fitting = iter((self._next,))
        else:
            fitting = (i for i in ahead if self._statements[i].target == name)
        others = (i for i in ahead if self._statements[i].target)
        return next(chain(fitting, others), None)

    def _value(self, node: ast.stmt) -> Span:
        """The value that is bound, all of `y = x`, whose value says little, or an If with its condition."""
        if isinstance(node, ast.If):
            return self._span(node, node.test)
        value = getattr(node, "value", None)
        whole = value is None or (isinstance(node, ast.Assign) and not isinstance(value, ast.Call))
        return self._span(node if whole or value is None else value)


def _names(target: str, name: str) -> bool:
    """Return whether a statement that binds `target` is one for a variable `name`.

    TVM prints a second `x` as `x_1`, and what is called `_12` as an expression statement.
    """
    if target == name:
        return True
    if target == "_":
        return name.strip("_0123456789") == ""
    return target.startswith(name) and target[len(name) :].lstrip("_").isdigit()

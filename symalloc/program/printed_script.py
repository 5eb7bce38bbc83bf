"""Places in the script that TVM prints for a module: bindings are numbered, and looked up to be shown.

TVM prints one statement for each binding, in order, and indents what is inside it.  So a binding is found by
its number, without a syntax tree of the whole text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from symalloc.program.span import Source, Span, span_of

_INDENT = 4
_DEFINITION, _RESULT = -1, -2
"""Numbers of what is no binding."""


class Branch(NamedTuple):
    """A branch of the If that is binding `number` of the branch `outer`; `taken`: the first of the two."""

    outer: int
    number: int
    taken: bool


Branches = Sequence[Branch]
"""The branches of a function by number; number 0 stands for what is outside of all Ifs."""
WHOLE_BODY = Branch(-1, -1, True)


class NumberedPlace(Span):
    """The place of a binding by its number (from 0) in a branch of a function.

    It stands for a span, and becomes one when the script is printed.
    """

    __slots__ = ()

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.file

    @property
    def number(self) -> int:
        """The number of the binding in its branch."""
        return self.line

    @property
    def branch(self) -> int:
        """The number of the branch."""
        return self.column


def numbered(function: str, number: int, branch: int) -> NumberedPlace:
    """The place of binding `number` (from 0) of a branch."""
    return NumberedPlace(function, number, branch, 0, 0)


def numbered_definition(function: str) -> NumberedPlace:
    """The place of the `def` line."""
    return numbered(function, _DEFINITION, 0)


def numbered_result(function: str) -> NumberedPlace:
    """The place of what the function returns."""
    return numbered(function, _RESULT, 0)


class PlaceFinder(Protocol):
    """A text that is there when something is to be shown in it."""

    def located(self, spans: Iterable[Span]) -> tuple[Source, Mapping[Span, Span]]:
        """The text, and where in it each numbered place stands; without those that it does not have."""


@dataclass(frozen=True)
class PrintedScript:
    """A script that TVM printed; `branches` by function are those that numbers refer to."""

    source: Source
    branches: Mapping[str, Branches] = field(default_factory=dict)

    def located(self, spans: Iterable[Span]) -> tuple[Source, Mapping[Span, Span]]:
        """See PlaceFinder."""
        places = (span for span in dict.fromkeys(spans) if isinstance(span, NumberedPlace))
        found = {place: self._span(place) for place in places}
        return self.source, {place: there for place, there in found.items() if there is not None}

    @cached_property
    def _lines(self) -> list[str]:
        return self.source.text.split("\n")

    @cached_property
    def _functions(self) -> dict[str, _Function]:
        return {}

    def _span(self, place: NumberedPlace) -> Span | None:
        function = self._functions.get(place.function)
        if function is None:
            function = _function(self._lines, place.function, self.branches.get(place.function, ()))
            self._functions[place.function] = function
        if place.number == _DEFINITION:
            return self._definition(function, place.function)
        if place.number == _RESULT:
            return None if function.result is None else self._value(function.result)
        statements = function.statements(place.branch)
        return self._value(statements[place.number]) if place.number < len(statements) else None

    def _definition(self, function: _Function, name: str) -> Span | None:
        if function.definition is None:
            return None
        start = self._lines[function.definition].index("def ") + 1
        line, end = function.definition + 1, start + len("def ") + len(name)
        return Span(file=self.source.file, line=line, column=start, end_line=line, end_column=end)

    def _value(self, statement: _Lines) -> Span | None:
        """The value that a statement binds; of an If the line with its test."""
        first, end = statement
        margin = _margin(self._lines[first])
        lines = [line[margin:] for line in self._lines[first:end]]
        if lines[0].startswith("if "):
            lines = [f"{lines[0]} pass"]
        try:
            node = ast.parse("\n".join(lines)).body[0]
        except (SyntaxError, IndexError):
            return None
        if isinstance(node, ast.If):
            span = span_of(self.source.file, lines, node, node.test)
        else:
            span = span_of(self.source.file, lines, getattr(node, "value", None) or node)
        return span._replace(
            line=span.line + first,
            end_line=span.end_line + first,
            column=span.column + margin,
            end_column=span.end_column + margin,
        )


class _Lines(NamedTuple):
    """A statement: its first line, and the one behind its last, counted from 0."""

    first: int
    end: int


class _Function:
    """The statements of one function, branch by branch, each list found when it is first asked for."""

    def __init__(self, lines: Sequence[str], definition: int | None, branches: Branches) -> None:
        self.definition = definition
        self.result: _Lines | None = None
        self._lines, self._branches = lines, branches
        self._found: dict[int, list[_Lines]] = {}
        if definition is not None:
            found = list(_statements(lines, definition + 1, len(lines), _margin(lines[definition]) + _INDENT))
            if found and lines[found[-1].first].lstrip().startswith("return"):
                self.result = found.pop()
            self._found[0] = found

    def statements(self, branch: int) -> list[_Lines]:
        """The statements of a branch that bind something, and behind them the one that yields its value."""
        found = self._found.get(branch)
        if found is None:
            found = self._found[branch] = self._inside(branch)
        return found

    def _inside(self, branch: int) -> list[_Lines]:
        if not 0 < branch < len(self._branches):
            return []
        outer, number, taken = self._branches[branch]
        around = self.statements(outer)
        if number >= len(around):
            return []
        first, end = around[number]
        margin = _margin(self._lines[first])
        between = " " * margin + "else:"
        middle = next((i for i in range(first, end) if self._lines[i] == between), end)
        inside = (first + 1, middle) if taken else (middle + 1, end)
        return list(_statements(self._lines, *inside, margin + _INDENT))


def _function(lines: Sequence[str], name: str, branches: Branches) -> _Function:
    opening = re.compile(rf"\s*def {re.escape(name)}\(")
    definition = next((i for i, line in enumerate(lines) if opening.match(line)), None)
    return _Function(lines, definition, branches)


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


_SILENT = re.compile(r"R\.func_attr\(|R\.output\(|@|#|cls = \w+$|\w+ = T\.\w+\([^()]*\)$|\w+: (?!.* = )")
"""Begins a line that binds nothing: an attribute, `cls = Module`, `n = T.int64()`, `x: R.Any` alone."""


def _statements(lines: Sequence[str], start: int, end: int, margin: int) -> Iterator[_Lines]:
    """The statements at a margin that bind something, or return, up to the first line left of it.

    What stands in a `with R.dataflow()` counts as standing outside.
    """
    first, flow = -1, False
    for i in range(start, end):
        text = lines[i].lstrip(" ")
        here = len(lines[i]) - len(text)
        if not text or here > margin + _INDENT * flow or text == "else:":
            continue
        if first >= 0:
            yield _Lines(first, i)
            first = -1
        if here < margin:
            return
        if here == margin:
            flow = text.startswith("with R.dataflow(")
        if not (flow and here == margin) and not _SILENT.match(text):
            first = i
    if first >= 0:
        yield _Lines(first, end)

"""Numbers the bindings of a function, so that they can be found in its script when that is printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from symalloc.program.printed_script import (
    WHOLE_BODY,
    Branch,
    NumberedPlace,
    numbered_definition,
    numbered_result,
)
from symalloc.program.record import from_fields
from symalloc.program.span import Span
from symalloc.relax.extract.spans import Places
from symalloc.relax.ir_types import Node, VarNode


class NumberedPlaces(Places):
    """The places of one function; `branches` are those entered so far."""

    def __init__(self, function: str) -> None:
        self.branches = [WHOLE_BODY]
        self._function, self._branch, self._next = function, 0, 0

    @property
    def definition(self) -> Span | None:
        """The `def` line."""
        return numbered_definition(self._function)

    @property
    def result(self) -> Span | None:
        """The value that the function returns."""
        return numbered_result(self._function)

    def of(self, var: VarNode, value: Node) -> tuple[Span | None, str]:
        """See Places; the text is found when it is shown."""
        number = self._next
        self._next = number + 1
        return from_fields(NumberedPlace, (self._function, number, self._branch, 0, 0)), ""

    @contextmanager
    def branch(self, *, taken: bool) -> Iterator[None]:
        """See Places."""
        outer, following = self._branch, self._next
        self.branches.append(Branch(outer, following - 1, taken))
        self._branch, self._next = len(self.branches) - 1, 0
        yield
        self._branch, self._next = outer, following

"""Messages of a job that reads a file to its parent.  Imports no TVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from symalloc.program.ir import Program
from symalloc.program.reading import ReadProblem
from symalloc.program.span import Source


@dataclass(frozen=True, slots=True)
class ReadingStep:
    """The next thing to be done: `reading`, `checking`, or the name of a TVM pass."""

    text: str


@dataclass(frozen=True, slots=True)
class ModuleBegun:
    """Module `number` (from 0) of the `count` in the file is read next."""

    name: str
    number: int
    count: int


Message: TypeAlias = ReadingStep | ModuleBegun | Source | Program | ReadProblem
Tell: TypeAlias = Callable[[Message], object]

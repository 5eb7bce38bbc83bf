"""What a worker and its parent say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from symalloc.program.model import Program
from symalloc.program.reading import ReadOptions, ReadProblem
from symalloc.program.span import Source


@dataclass(frozen=True, slots=True)
class Request:
    """Read `file`, without its first `skip` modules; a relative name starts from `folder`."""

    file: str
    options: ReadOptions
    skip: int = 0
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What the worker is about to do: `reading`, `checking`, or the name of a TVM pass."""

    text: str


@dataclass(frozen=True, slots=True)
class Module:
    """Module `number` (from 0) of the `count` in the file is read next."""

    name: str
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """The request is done; the worker waits for the next one."""


Message: TypeAlias = Step | Module | Source | Program | ReadProblem | Done

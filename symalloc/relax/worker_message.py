"""What a worker and its parent say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from symalloc.program.model import Program
from symalloc.program.span import Source
from symalloc.relax.read_result import Problem, ReadOptions

__all__ = ["Done", "Message", "Module", "Request", "Step"]


@dataclass(frozen=True, slots=True)
class Request:
    """Read `file`, without its first `skip` modules."""

    file: str
    options: ReadOptions
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What the worker is about to do: `reading`, or the name of a TVM pass."""

    text: str


@dataclass(frozen=True, slots=True)
class Module:
    """Which module of the file is read next, from 0."""

    number: int


@dataclass(frozen=True, slots=True)
class Done:
    """The request is done; the worker waits for the next one."""


Message: TypeAlias = Step | Module | Source | Program | Problem | Done

"""Reading modules: the options, and what a file gave (programs and problems).  Imports no TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from symalloc.errors import UsageError
from symalloc.program.ir import Program
from symalloc.program.span import Source, Span

DEFAULT_TIMEOUT = 300.0  # seconds for one file

STAGES = ("auto", "as-is", "planned", "all")
"""The stages that are no passes; any other stage is the name of a pass."""
AS_IS = "as-is"
PipelineName: TypeAlias = Literal["default", "target"]  # what relax.build runs, or the target's own


def is_stage(name: object) -> bool:
    """Return whether `name` is a stage, or may be the name of a pass, which only the pipeline knows."""
    return isinstance(name, str) and (name in STAGES or (name[:1].isupper() and name.isidentifier()))


class InputError(UsageError):
    """An argument names nothing that can be read."""


class UnreadableError(Exception):
    """A file holds nothing that can be read; `span` says where, where that is known, `hint` what to do."""

    said = "cannot be read: "
    """How a sentence begins that ends with the message."""

    def __init__(self, message: str, span: Span | None = None, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.span = span
        self.hint = hint

    @property
    def sentence(self) -> str:
        """The message as a sentence without its subject."""
        return f"{self.said}{self}"


class ImportRefusedError(UnreadableError):
    """TVM's importer cannot make a module of a model; the message names the operator and its place."""

    said = "cannot be imported: "


class MissingExtraError(UnreadableError):
    """Reading a file needs a library that is not installed; the message says it all."""

    said = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of reading.

    `trust`: evaluate whatever the scripts hold, and run the module-level code of a `.py` file where its
    scripts need it.  `stage`: `as-is` reads a module as it stands, `planned` what TVM's passes make of it,
    `auto` both where the module holds no memory operations yet, `all` the program after every pass from
    CallTIRRewrite on; the name of a pass reads what that pass leaves.  `target` is a TVM target, `pipeline`
    the "default" one, which `relax.build` runs for it, or the "target"'s own.  `timeout`: seconds for one
    file.
    """

    trust: bool = False
    stage: str = "auto"
    target: str = "llvm"
    pipeline: PipelineName = "default"
    timeout: float = DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProblem:
    """Something that could not be read, or not be lowered: `message` says what and why, `hint` what to do.

    `stage` names the TVM pass where it happened, None while reading.  `passing`: it may not happen again,
    such as a lack of time or of memory.
    """

    file: str
    message: str
    hint: str | None = None
    span: Span | None = None
    module: str | None = None
    stage: str | None = None
    passing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """The programs and problems of one file, or of one module in memory.

    `source` is the user's own text, None for JSON.
    """

    file: str
    programs: tuple[Program, ...] = ()
    problems: tuple[ReadProblem, ...] = ()
    source: Source | None = None


# -- what a job that reads a file tells its parent ----------------------------------------------------------


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


def result_of(file: str, told: Sequence[Message]) -> FileResult:
    """The programs and problems of `file` among what was told of it."""
    return FileResult(
        file=file,
        programs=tuple(message for message in told if isinstance(message, Program)),
        problems=tuple(message for message in told if isinstance(message, ReadProblem)),
        source=next((message for message in told if isinstance(message, Source)), None),
    )

"""Reading modules: the options, and what a file gave (programs and problems).  Imports no TVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from symalloc.errors import UsageError, meant, shown
from symalloc.options import FLAG, SECONDS, Kind, choice, option, read_fields
from symalloc.program.ir import Program
from symalloc.program.packed_contracts import PackedContract, stated_contracts
from symalloc.program.span import Source, Span

DEFAULT_TIMEOUT = 300.0  # seconds for one file

STAGES = ("auto", "as-is", "planned", "all")
"""The stages that are no passes; any other stage is the name of a pass."""
AS_IS = "as-is"
PipelineName: TypeAlias = Literal["default", "target"]  # what relax.build runs, or the target's own


def _stage(name: str, value: object) -> object:
    if isinstance(value, str) and (value in STAGES or (value[:1].isupper() and value.isidentifier())):
        return value  # as for passes, only the pipeline knows their names
    known = f"it must be one of {', '.join(STAGES)}, or the name of a pass"
    raise UsageError(f"{name} is {shown(value)}; {known}{meant(value, STAGES)}")


def _target(name: str, value: object) -> object:
    if isinstance(value, str) or type(value).__name__ == "Target":
        return value
    raise UsageError(f"{name} is {shown(value)}; it must be the name of a target of TVM, or a Target")


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
class ModuleOptions:
    """Options of reading and lowering a module.  Raises UsageError for values that make no sense.

    `packed` are the contracts of packed functions that somebody stated, by name.
    """

    target: str = option(
        "llvm", Kind(read=_target, metavar="TEXT"), "The TVM target to lower for: a name, or JSON."
    )
    pipeline: PipelineName = option(
        "default",
        choice(PipelineName),
        "The pipeline that relax.build runs, or the target's own, which fuses operators. On a GPU they are "
        "the same.",
    )
    trust: bool = option(
        False, FLAG, "Run all code of the files. Never use it for code that you have not read."
    )

    packed: Mapping[str, PackedContract] = field(default_factory=stated_contracts)

    def __post_init__(self) -> None:
        read_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ModuleOptions):
    """Options of reading the stages of a module."""

    stage: str = option(
        "auto",
        Kind(read=_stage, metavar="|".join((*STAGES, "PASS"))),
        "as-is: check the modules as they stand; planned: check them after TVM's passes; all: check every "
        "stage; auto (default): as-is, and planned for modules without memory operations; or the name of a "
        "pass of TVM's pipeline, such as VMShapeLower: check them after that pass.",
        in_file=True,
    )
    timeout: float = option(
        DEFAULT_TIMEOUT, SECONDS, "The most time for reading one file. Then the file is a finding (SYM902)."
    )


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
class ModuleBegun:
    """Module `number` (from 0) of the `count` in the file is read next."""

    name: str
    number: int
    count: int


Message: TypeAlias = str | ModuleBegun | Source | Program | ReadProblem
"""A text is the next thing to be done: `reading`, `checking`, or the name of a TVM pass."""
Tell: TypeAlias = Callable[[Message], object]


def result_of(file: str, told: Sequence[Message]) -> FileResult:
    """The programs and problems of `file` among what was told of it."""
    return FileResult(
        file=file,
        programs=tuple(message for message in told if isinstance(message, Program)),
        problems=tuple(message for message in told if isinstance(message, ReadProblem)),
        source=next((message for message in told if isinstance(message, Source)), None),
    )

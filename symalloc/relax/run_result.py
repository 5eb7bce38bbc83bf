"""What planning and running give back, and how they fail.  Imports no TVM: it crosses from process to
process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from symalloc.plan.account.summary import Summary
from symalloc.program.model import Program

__all__ = ["Output", "PipelineName", "PlannedFile", "RunError", "RunResult"]

# TVM's "default" pipeline, or the target's own
PipelineName: TypeAlias = Literal["default", "target"]


class RunError(Exception):
    """It cannot be done as asked; the text is meant for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One tensor that came back: extents in elements, the element type's name, and its bytes."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run gave.

    `planned` counts the tensors in arenas; `arena_bytes` (of all arenas) and `floor_bytes` are those of the
    function that was run, under its binding; None where they depend on what becomes known only later.
    `difference` says where the unplanned module gave other bits, None where it gave the same; `checked`
    whether it was asked at all.  `seconds` holds the time of each repetition.
    """

    function: str
    binding: Mapping[str, int]
    outputs: tuple[Output, ...]
    planned: int
    arena_bytes: int | None
    floor_bytes: int | None
    seconds: tuple[float, ...]
    checked: bool = False
    difference: str | None = None

    @property
    def ratio(self) -> float | None:
        """Arena over floor; 1 where nothing is live."""
        if self.arena_bytes is None or self.floor_bytes is None:
            return None
        return self.arena_bytes / self.floor_bytes if self.floor_bytes else 1.0

    @property
    def output_bytes(self) -> int:
        """The bytes of all tensors that came back."""
        return sum(output.nbytes for output in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A module from a file, planned.

    `text` is the planned module in the form that was asked for; `program` the same module extracted, with
    spans into the script that TVM prints; `original` what was in the file.
    """

    text: str
    program: Program
    original: Program
    summaries: tuple[Summary, ...]

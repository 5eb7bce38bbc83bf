"""What planning and running give back, and how they fail.  Imports no TVM: it crosses from process to
process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from symalloc.plan.model import Plan
from symalloc.program.model import Program
from symalloc.size.expr import Expr

__all__ = ["Output", "PlannedFile", "RunError", "RunResult"]


class RunError(Exception):
    """It cannot be done as asked; the text is meant for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One tensor that came back: extents in elements, and the element type's name."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run gave.

    `planned` counts the tensors in arenas; `arena_bytes` and `floor_bytes` are those of the function that
    was run, under its binding.  `difference` says where the unplanned module gave other bits, None where
    it gave the same; `checked` whether it was asked at all.  `seconds` holds the time of each repetition.
    """

    function: str
    binding: Mapping[str, int]
    outputs: tuple[Output, ...]
    planned: int
    arena_bytes: int
    floor_bytes: int
    seconds: tuple[float, ...]
    checked: bool = False
    difference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A module from a file, planned.

    `text` is the planned module in the form that was asked for; `program` the same module extracted, with
    spans into the script that TVM prints; `original` what was in the file; `tvm_bytes` holds, by function,
    the sizes of the storages that StaticPlanBlockMemory allocates for the module, None where it fails on it.
    """

    text: str
    program: Program
    original: Program
    plans: Mapping[str, Plan]
    tvm_bytes: Mapping[str, tuple[Expr, ...]] | None

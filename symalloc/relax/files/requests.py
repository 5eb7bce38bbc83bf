"""Requests and results of planning files.  Imports no TVM: they cross from process to process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from symalloc.planner.memory_plan import PlanOptions
from symalloc.planner.memory_report.deployment import Deployment
from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.program.ir import Program
from symalloc.program.reading import ModuleOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest(ModuleOptions):
    """A module in what `path` names: the one called `module` where there are several; `plan` says how it is
    planned.

    `data` is the content of `path` where that is not in a file.
    """

    path: Path
    data: bytes | None = None
    module: str | None = None
    plan: PlanOptions = field(default_factory=PlanOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A module from a file, planned.

    `text` is the planned module in the form that was asked for; `program` the same module extracted, with
    spans into the script that TVM prints; `original` what was in the file.  `deployment` is the memory of
    each function, in their order.  `certificate` holds the proofs as files, where they were asked for.
    """

    text: str
    program: Program
    original: Program
    reports: tuple[FunctionReport, ...]
    deployment: Deployment
    certificate: Mapping[str, str] | None = None

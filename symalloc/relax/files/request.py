"""Which module of which file is planned, and for what.  Imports no TVM: it goes from process to process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from symalloc.relax.files.result import PipelineName


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A module in the file `path`: the one called `module` where there are several.

    `trust`: a script may run whatever it holds.  `pipeline`: TVM's "default" one, or the target's own.
    """

    path: Path
    trust: bool = False
    module: str | None = None
    target: str = "llvm"
    pipeline: PipelineName = "default"

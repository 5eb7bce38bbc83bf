"""A run of a file: the job of `symalloc run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from symalloc.relax.pipeline import Flavour
from symalloc.relax.run import Runner
from symalloc.relax.run_load import load_one
from symalloc.relax.run_result import RunResult

__all__ = ["run_file"]


def run_file(
    path: Path,
    binding: Mapping[str, int],
    *,
    trust: bool,
    module: str | None,
    function: str | None,
    check: bool,
    seed: int,
    repeat: int,
    target: str,
    flavour: Flavour,
) -> RunResult:
    """Loads the module in `path` and runs it; raises RunError."""
    loaded = load_one(path, trust=trust, module=module)
    runner = Runner(loaded, function=function, target=target, flavour=flavour)
    return runner.run(binding, check=check, seed=seed, repeat=repeat)

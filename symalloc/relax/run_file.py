"""A run of a file: the job of `symalloc run`."""

from __future__ import annotations

from collections.abc import Mapping

from symalloc.plan.options import PlanOptions
from symalloc.relax.plan_request import PlanRequest
from symalloc.relax.run import Runner
from symalloc.relax.run_load import load_one
from symalloc.relax.run_result import RunResult

__all__ = ["run_file"]


def run_file(
    request: PlanRequest,
    binding: Mapping[str, int],
    *,
    options: PlanOptions,
    function: str | None,
    check: bool,
    seed: int,
    repeat: int,
) -> RunResult:
    """Loads the module and runs it; raises RunError."""
    loaded = load_one(request.path, trust=request.trust, module=request.module)
    runner = Runner(
        loaded, function=function, target=request.target, pipeline=request.pipeline, options=options
    )
    return runner.run(binding, check=check, seed=seed, repeat=repeat)

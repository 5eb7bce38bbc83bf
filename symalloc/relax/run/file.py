"""A run of a file: the job of `symalloc run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symalloc.planner.planner_options import PlanOptions
from symalloc.relax.files.load import load_one
from symalloc.relax.files.request import PlanRequest
from symalloc.relax.files.result import PlanKind, PoolRequest, RunReport
from symalloc.relax.run.pool import made
from symalloc.relax.run.run import Runner
from symalloc.relax.run.sweep import sweep


def run_file(
    request: PlanRequest,
    bindings: Sequence[Mapping[str, int]],
    *,
    options: PlanOptions,
    function: str | None,
    plan: PlanKind,
    pool: PoolRequest | None,
    check: bool,
    compare: bool,
    seed: int,
    repeat: int,
) -> RunReport:
    """Loads the module and runs it; raises RunError."""
    loaded = load_one(request.path, trust=request.trust, module=request.module)
    runner = Runner(
        loaded,
        function=function,
        target=request.target,
        pipeline=request.pipeline,
        options=options,
        plan=plan,
        pool=None if pool is None else made(pool),
    )
    return sweep(runner, bindings, seed=seed, repeat=repeat, check=check, compare=compare, asked=pool)

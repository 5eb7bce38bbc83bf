"""Modules planned with aliases, and run beside the same without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import tvm

from symalloc.analysis.donation import parse_donation
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule, plan_lowered
from symalloc.relax.run.runner import Runner
from tests.relax.built import errors

__all__ = ["planned", "runner", "same_bits_and_no_finding"]


def _options(alias: Iterable[str], more: Mapping[str, Any]) -> PlanOptions:
    return PlanOptions(alias=tuple(map(parse_donation, alias)), **more)


@cache
def planned(module: tvm.IRModule, *alias: str, **options: Any) -> PlannedModule:
    return plan_lowered(lower(module, "llvm"), options=_options(alias, options))


def runner(module: tvm.IRModule, *alias: str, pipeline: Any = "default", **options: Any) -> Runner:
    return Runner(module, options=_options(alias, options), pipeline=pipeline)


def same_bits_and_no_finding(
    module: tvm.IRModule, alias: Iterable[str], bindings: Iterable[Mapping[str, int]], **options: Any
) -> None:
    """Run a module at each binding beside what is not planned, and lint its plan."""
    run = runner(module, *alias, **options).run
    results = [run(at, check=True, seed=seed) for at in bindings for seed in (0, 1)]
    assert [(r.checked, r.difference, r.undetermined) for r in results] == [(True, None, None)] * len(results)
    options.pop("pipeline", None)
    assert errors(planned(module, *alias, **options).module) == []

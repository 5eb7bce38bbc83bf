"""The passes that pipelines run, for every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm.ir.transform import PassContext, Sequential
from tvm.relax import transform
from tvm.target import Target

import symalloc
from symalloc.relax.passes.pipeline import NoPlannerError, finishing_pipeline, lower
from symalloc.relax.passes.stages import PLANNER, instrument, tvm_pipeline

EMPTY = tvm.IRModule()
WRAPPERS = ("_pipeline", "sequential", "symalloc")
TARGETS = ("llvm", "c", "cuda", "rocm", "opencl", "metal", "vulkan", "webgpu")


def run_by(pipeline: Callable[[tvm.IRModule], Any], target: Target) -> list[str]:
    """The names of the passes that TVM runs, none inside another."""
    found: list[str] = []

    inside = list[str]()

    def before(_: tvm.IRModule, info: Any) -> None:
        if info.name not in WRAPPERS:
            if not inside:
                found.append(str(info.name))
            inside.append(info.name)

    def after(_: tvm.IRModule, info: Any) -> None:
        if info.name not in WRAPPERS:
            inside.pop()

    noting = instrument("Noting", run_before_pass=before, run_after_pass=after)
    with target, PassContext(instruments=[noting]):
        pipeline(EMPTY)
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_instruments_see_each_of_tvms_passes_once_and_ours(target: str) -> None:
    chosen = Target(target)
    ours, theirs = (run_by(p, chosen) for p in (symalloc.pipeline(target), tvm_pipeline(chosen)))
    in_front = ["CanonicalKernels", "PlanMemory", "LowerGuards", "GatherSizes"]
    added = [*in_front, "KillOnPaths", "PromiseNoAlias"]
    replaced = (PLANNER, "KillAfterLastUse")
    assert [n for n in ours if n not in added] == [n for n in theirs if n not in replaced]
    assert [n for n in ours if n in added] == added
    front = run_by(lambda module: lower(module, chosen), chosen)
    behind = run_by(finishing_pipeline(chosen), chosen)
    place = theirs.index(PLANNER)
    assert front == [*theirs[:place], "CanonicalKernels"]
    assert [n for n in behind if n not in added] == [n for n in theirs[place:] if n not in replaced]


def test_a_pipeline_without_a_planner_is_refused() -> None:
    for given in (Sequential([transform.LegalizeOps()]), transform.LegalizeOps()):
        with pytest.raises(NoPlannerError, match="no StaticPlanBlockMemory, whose place is ours; it runs "):
            lower(EMPTY, "llvm", pipeline=given)

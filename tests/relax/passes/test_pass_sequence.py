"""The passes that pipelines run, for every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm.ir.instrument import pass_instrument
from tvm.ir.transform import PassContext, Sequential
from tvm.relax import transform
from tvm.target import Target

import symalloc
from symalloc.relax.passes.pipeline import NoPlannerError, finishing_pipeline, lower
from symalloc.relax.passes.stages import PLANNER, tvm_pipeline

EMPTY = tvm.IRModule()
WRAPPERS = ("_pipeline", "sequential", "symalloc")
TARGETS = ("llvm", "c", "cuda", "rocm", "opencl", "metal", "vulkan", "webgpu")


def run_by(pipeline: Callable[[tvm.IRModule], Any], target: Target) -> list[str]:
    """The names of the passes that TVM runs, none inside another."""
    found: list[str] = []

    @pass_instrument
    class Noting:
        depth = 0

        def run_before_pass(self, _: tvm.IRModule, info: object) -> None:
            name = str(info.name)  # type: ignore[attr-defined]
            if name not in WRAPPERS:
                if Noting.depth == 0:
                    found.append(name)
                Noting.depth += 1

        def run_after_pass(self, _: tvm.IRModule, info: object) -> None:
            Noting.depth -= str(info.name) not in WRAPPERS  # type: ignore[attr-defined]

    with target, PassContext(instruments=[Noting()]):
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
    front, behind = (run_by(_part(module_part, chosen), chosen) for module_part in (lower, _finished))
    place = theirs.index(PLANNER)
    assert front == [*theirs[:place], "CanonicalKernels"]
    assert [n for n in behind if n not in added] == [n for n in theirs[place:] if n not in replaced]


def _part(run: Callable[[tvm.IRModule, Target], tvm.IRModule], target: Target) -> Callable[[Any], Any]:
    return lambda module: run(module, target)


def _finished(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    return finishing_pipeline(target)(module)


def test_a_pipeline_without_a_planner_is_refused() -> None:
    for given in (Sequential([transform.LegalizeOps()]), transform.LegalizeOps()):
        with pytest.raises(NoPlannerError, match="no StaticPlanBlockMemory, whose place is ours; it runs "):
            lower(EMPTY, "llvm", pipeline=given)

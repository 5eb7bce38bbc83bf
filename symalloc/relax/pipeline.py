"""TVM's compilation pipelines with the memory planner of one's choice in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import tvm
from tvm import relax
from tvm.relax import backend, transform

from symalloc.relax.plan_pass import PlanMemory

__all__ = ["Flavour", "pipeline", "pipeline_with", "stages_before_planning"]

Flavour: TypeAlias = Literal["default", "target"]


def pipeline(target: str | tvm.target.Target = "llvm", *, flavour: Flavour = "default") -> tvm.transform.Pass:
    """What `relax.build(mod, target, relax_pipeline=…)` takes to plan memory with PlanMemory.

    `default` is TVM's "default" pipeline; `target` is `relax.get_default_pipeline(target)`, which fuses
    operators.
    """
    return pipeline_with([PlanMemory()], target, flavour=flavour)


def pipeline_with(
    planner: Sequence[tvm.transform.Pass], target: str | tvm.target.Target, *, flavour: Flavour = "default"
) -> tvm.transform.Pass:
    """The pipeline with the passes `planner` in place of StaticPlanBlockMemory (none: every tensor by
    itself).
    """
    target = tvm.target.Target(target)
    passes = [*stages_before_planning(target, flavour=flavour), *planner, *_after_planning(target, flavour)]

    @tvm.transform.module_pass(opt_level=0, name="symalloc")  # type: ignore[untyped-decorator]
    def run(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        with target:
            return tvm.transform.Sequential(passes)(module)

    return run


def stages_before_planning(
    target: tvm.target.Target, *, flavour: Flavour = "default"
) -> list[tvm.transform.Pass]:
    """The passes that take a module to where memory is planned, CallTIRRewrite last."""
    if flavour == "target":
        return [
            *relax.pipeline.library_dispatch_passes(target),
            *relax.pipeline.legalize_passes(target),
            *relax.pipeline.dataflow_lower_passes(target),
        ]
    return [
        backend.DispatchSampling(),
        backend.DispatchSortScan(),
        transform.LegalizeOps(),
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    ]


def _after_planning(target: tvm.target.Target, flavour: Flavour) -> list[tvm.transform.Pass]:
    if flavour == "target":
        finalize = relax.pipeline.finalize_passes(target)
        return [p for p in finalize if p.info.name != "StaticPlanBlockMemory"]
    return [
        transform.RewriteCUDAGraph(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]

"""TVM's compilation pipelines with the memory planner of one's choice in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import tvm
from tvm import relax
from tvm.relax import backend, transform
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline

from symalloc.planner.planner_options import PlanOptions
from symalloc.program.reading import PipelineName
from symalloc.relax.passes.kill_on_paths import KillOnPaths
from symalloc.relax.passes.lower_guards import LowerGuards
from symalloc.relax.passes.plan_pass import PlanMemory
from symalloc.relax.passes.trim_calls import TrimCalls


def pipeline(
    target: str | tvm.target.Target | None = None,
    *,
    pipeline: PipelineName = "default",
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
) -> tvm.transform.Pass:
    """A pipeline for `relax.build(mod, target, relax_pipeline=…)` that plans memory with PlanMemory.

    `pipeline`: "default" is TVM's pipeline of that name, "target" is `relax.get_default_pipeline(target)`,
    which fuses operators.  Without `target` it is built for the target that is current when it runs.
    """

    def stages(now: tvm.target.Target) -> list[tvm.transform.Pass]:
        before, after = _stages_before_planning(now, pipeline), _stages_after_planning(now, pipeline)
        return [*before, PlanMemory(options), *after]

    return _together(stages, target)


def lower(
    module: tvm.IRModule, target: str | tvm.target.Target, *, pipeline: PipelineName = "default"
) -> tvm.IRModule:
    """`module` as it is where memory is planned: behind CallTIRRewrite."""
    return _together(lambda chosen: _stages_before_planning(chosen, pipeline), target)(module)


def finishing_pipeline(
    target: str | tvm.target.Target, *, pipeline: PipelineName = "default"
) -> tvm.transform.Pass:
    """The passes behind memory planning: what no planner has placed gets a storage each."""
    return _together(lambda chosen: _stages_after_planning(chosen, pipeline), target)


def _together(
    stages: Callable[[tvm.target.Target], Sequence[tvm.transform.Pass]],
    target: str | tvm.target.Target | None,
) -> tvm.transform.Pass:
    """The passes that `stages` gives for the target, as one."""
    fixed = None if target is None else tvm.target.Target(target)

    @tvm.transform.module_pass(opt_level=0, name="symalloc")  # type: ignore[untyped-decorator]
    def run(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        now = fixed or tvm.target.Target.current(allow_none=True) or tvm.target.Target("llvm")
        passes = stages(now)
        with now:
            return tvm.transform.Sequential(passes)(module)

    return run


def _stages_before_planning(
    target: tvm.target.Target, pipeline: PipelineName = "default"
) -> list[tvm.transform.Pass]:
    """The passes that take a module to where memory is planned, CallTIRRewrite last."""
    if pipeline == "target":
        parts = _parts(target)
        return [
            *parts.library_dispatch_passes(target),
            *parts.legalize_passes(target),
            *parts.dataflow_lower_passes(target),
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


def _stages_after_planning(target: tvm.target.Target, pipeline: PipelineName) -> list[tvm.transform.Pass]:
    """TVM's finalizing passes without its planner, and ours where they belong."""
    return [*_with_ours(_finalizing(target, pipeline))]


def _with_ours(passes: Sequence[tvm.transform.Pass]) -> Iterator[tvm.transform.Pass]:
    for one in passes:
        name = one.info.name
        if name == "ComputePrimValue":
            yield LowerGuards()
        if name != "StaticPlanBlockMemory":
            yield one
        if name == "VMShapeLower":
            yield KillOnPaths()
            yield TrimCalls()


def _finalizing(target: tvm.target.Target, pipeline: PipelineName) -> Sequence[tvm.transform.Pass]:
    if pipeline == "target":
        return list(_parts(target).finalize_passes(target))
    return [
        transform.RewriteCUDAGraph(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]


def _parts(target: tvm.target.Target) -> ModuleType:
    """The module with the parts of the target's own pipeline: TVM 0.27 does not export those for the CPU."""
    return cpu_pipeline if target.kind.name == "llvm" else relax.pipeline

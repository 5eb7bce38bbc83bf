"""TVM's compilation pipelines with the memory planner of one's choice in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import tvm
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.relax.transform import ComputePrimValue
from tvm.target import Target

from symalloc.planner.planner_options import PlanOptions
from symalloc.program.reading import PipelineName
from symalloc.relax.passes.gather_sizes import GatherSizes
from symalloc.relax.passes.keep_conditions import KeepConditions
from symalloc.relax.passes.keep_places import keeping_places
from symalloc.relax.passes.kill_on_paths import KillOnPaths
from symalloc.relax.passes.lower_guards import LowerGuards
from symalloc.relax.passes.name_tensors import NameTensors
from symalloc.relax.passes.pass_sequence import (
    around_planner,
    as_tvm_has_them,
    captures_graphs,
    passes_of,
    tvm_pipeline,
)
from symalloc.relax.passes.plan_pass import PlanMemory
from symalloc.relax.passes.promise_no_alias import PromiseNoAlias
from symalloc.relax.passes.trim_calls import TrimCalls

STORAGES_MADE = "LowerAllocTensor"
"""The pass behind which every storage is explicit."""


def pipeline(
    target: str | Target | None = None,
    *,
    pipeline: PipelineName | Pass = "default",
    options: PlanOptions = PlanOptions(),  # noqa: B008 - frozen
    names: bool = False,
) -> Pass:
    """A pipeline for `relax.build(mod, target, relax_pipeline=…)` that plans memory with PlanMemory.

    `pipeline`: one with StaticPlanBlockMemory in it, or the name of one, as for `tvm_pipeline`.  Without
    `target` it is built for the target that is current when it runs.  `names`: with NameTensors.
    """

    def planning(before: Sequence[Pass], after: Sequence[Pass]) -> list[Pass]:
        return [*before, PlanMemory(options), *_with_ours(after, names=names)]

    return _with_passes(planning, target, pipeline, places=names)


def lower(
    module: tvm.IRModule, target: str | Target, *, pipeline: PipelineName | Pass = "default"
) -> tvm.IRModule:
    """`module` as it is where memory is planned: behind CallTIRRewrite, with the places of its calls."""
    return _with_passes(lambda before, _: before, target, pipeline, places=True)(module)


def finishing_pipeline(
    target: str | Target, *, pipeline: PipelineName | Pass = "default", names: bool = False
) -> Pass:
    """The passes behind memory planning: what no planner has placed gets a storage each.

    `names`: with NameTensors.
    """
    return _with_passes(lambda _, after: [*_with_ours(after, names=names)], target, pipeline, places=names)


def _with_passes(
    chosen: Callable[[Sequence[Pass], Sequence[Pass]], Sequence[Pass]],
    target: str | Target | None,
    pipeline: PipelineName | Pass,
    *,
    places: bool,
) -> Pass:
    """The passes that `chosen` makes of those in front of TVM's planner and those behind it, as one.

    `places`: what is allocated keeps the place that it comes from, up to NameTensors.
    """
    fixed = None if target is None else Target(target)

    @tvm.transform.module_pass(opt_level=0, name="symalloc")  # type: ignore[untyped-decorator]
    def run(module: tvm.IRModule, _: PassContext) -> tvm.IRModule:
        now = fixed or Target.current(allow_none=True) or Target("llvm")
        whole = pipeline if isinstance(pipeline, Pass) else tvm_pipeline(now, pipeline)
        with now, as_tvm_has_them():
            passes = list(chosen(*around_planner(passes_of(whole, module, now))))
            if not places:
                return Sequential(passes)(module)
            behind = 1 + next(
                (i for i, one in enumerate(passes) if one.info.name == "NameTensors"), len(passes)
            )
            return Sequential(passes[behind:])(keeping_places(passes[:behind], module))

    return run


def _with_ours(passes: Sequence[Pass], *, names: bool = False) -> Iterator[Pass]:
    """TVM's finalizing passes, and ours where they belong.

    `names`: tensors are named as soon as every storage is explicit.
    """
    before = ""
    for one in passes:
        yield from beside(one, before)
        before = str(one.info.name)
        if names and before == STORAGES_MADE:
            yield NameTensors()


def beside(one: Pass, before: str) -> Iterator[Pass]:
    """A pass that stands behind TVM's planner and behind the pass `before`, and ours that belong to it.

    Not every pipeline has ComputePrimValue: none of TVM's plans has offsets to compute.
    """
    name = one.info.name
    if name == "RewriteCUDAGraph" and captures_graphs():
        yield KeepConditions()
    if name == "ComputePrimValue":
        yield from (LowerGuards(), GatherSizes())
    elif name == "VMShapeLower" and before != "ComputePrimValue":
        yield from (LowerGuards(), GatherSizes(), ComputePrimValue())
    yield one
    if name == "VMShapeLower":
        yield KillOnPaths()
        yield TrimCalls()
        yield PromiseNoAlias()

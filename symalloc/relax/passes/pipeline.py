"""TVM's compilation pipelines with the memory planner of one's choice in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.relax.transform import ComputePrimValue
from tvm.target import Target

from symalloc.planner.planner_options import PlanOptions
from symalloc.program.reading import PipelineName
from symalloc.relax.ir_types import BindingNode, elements
from symalloc.relax.passes.keep_places import keeping_places
from symalloc.relax.passes.kill_on_paths import KillOnPaths
from symalloc.relax.passes.name_tensors import NameTensors
from symalloc.relax.passes.pass_sequence import (
    PATCHING,
    PLANNER,
    REPLACING,
    around_planner,
    as_tvm_has_them,
    captures_graphs,
    passes_of,
    tvm_pipeline,
)
from symalloc.relax.passes.plan_pass import PlanMemory
from symalloc.relax.passes.sizes_and_guards import GatherSizes, LowerGuards
from symalloc.relax.passes.trim_calls import TrimCalls
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_body

_COPY = "vm.builtin.copy"  # gives what it is given, copied or not
_PROMISE = "tirx.noalias"

_STORAGES_MADE = "LowerAllocTensor"  # the pass behind which every storage is explicit


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
    names_in_front = ["", *(str(one.info.name) for one in passes)]
    for one, before in zip(passes, names_in_front, strict=False):
        yield from _beside(one, before, names=names)


def _beside(one: Pass, before: str, *, names: bool) -> Iterator[Pass]:
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
    if names and name == _STORAGES_MADE:
        yield NameTensors()


# -- small passes ------------------------------------------------------------------------------------------


@tvm.transform.module_pass(opt_level=0, name="KeepConditions")
class KeepConditions:
    """Lets each If depend on a variable that is bound outside of every region that can be captured.

    TVM 0.27's RewriteCUDAGraph, in front of which it stands, takes no notice of the condition of an If: what
    computes it is captured, and the condition itself is left undefined.  It captures no packed function that
    is called vm.builtin, and knows what such a call uses.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with one call more for each If."""
        return map_functions(module, lambda _, function: _with_conditions_kept(function))


def _with_conditions_kept(function: relax.Function) -> relax.Function | None:
    if not isinstance(function.body, relax.SeqExpr):
        return None
    writer = _ConditionKeeper()
    written = with_body(function, writer.sequence(function.body))
    return written if writer.found else None


@dataclass(slots=True, kw_only=True)
class _ConditionKeeper(BindingRewriter):
    """`found`: the function branches."""

    found: bool = False

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value = binding.value
        if type(value) is not relax.If:
            return [binding]
        self.found = True
        copy = Call(relax.ExternFunc(_COPY), [value.cond], ty_args=[value.cond.ty])
        condition = self.bind("condition", copy)
        sides = (self.branch(value.true_branch), self.branch(value.false_branch))
        chosen = self.builder.normalize(relax.If(condition.var, *sides, value.span))
        return [condition, relax.VarBinding(binding.var, chosen)]


@tvm.transform.module_pass(opt_level=0, name="PromiseNoAlias")
class PromiseNoAlias:
    """Promises for functions of at most one buffer, which no other can overlap, that buffers do not overlap.

    TVM 0.27 writes the kernels of a module one after the other, and whether the last by name has the promise
    decides for all of them.  Functions of shapes, guards and offsets have not, and stand behind kernels such
    as `conv2d`: without the promise these take up to three times as long.  Stands behind VMShapeLower.
    A module
    with a kernel of several buffers without that promise stays as it is: that could be compiled as if it had
    one.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with the promise in each of its kernels, or as it was."""
        kernels = [(v, f) for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)]
        without = [(v, f) for v, f in kernels if f.attrs is None or not f.attrs.get(_PROMISE)]
        if not without or any(_may_overlap(kernel) for _, kernel in without):
            return module
        promising = module.clone()
        for variable, kernel in without:
            promising.update_func(variable, kernel.with_attr(_PROMISE, True))
        return promising


def _may_overlap(kernel: tirx.PrimFunc) -> bool:
    """Return whether `kernel` takes more than one argument that is no number."""
    return sum(type(p.ty) is not tvm.ir.PrimType for p in elements(kernel.params)) > 1


# -- pipelines that make TVM's planner themselves ------------------------------------------------------------

# Python code runs a pass by calling it: a pipeline, and each sequence that a pipeline makes in turn.  While a
# replacement holds, what is called runs with ours where they belong.


@dataclass(frozen=True, slots=True)
class Replacement:
    """The options of the planner that stands for TVM's, and whether tensors are named behind it."""

    options: PlanOptions
    names: bool = False


_call = Pass.__call__
_holding = 0  # replacements
_everywhere: Replacement | None = None


@contextmanager
def replace_planner(options: PlanOptions, *, names: bool = False) -> Iterator[None]:
    """Within, pipelines that this thread runs plan with PlanMemory where TVM's planner stands."""
    _hold(1)
    token = REPLACING.set(Replacement(options, names))
    try:
        yield
    finally:
        REPLACING.reset(token)
        _hold(-1)


def replace_planner_everywhere(options: PlanOptions) -> None:
    """Let all threads do so from now on, except where `replace_planner` says otherwise."""
    global _everywhere
    if _everywhere is None:
        _hold(1)
    _everywhere = Replacement(options)


def _hold(more: int) -> None:
    """Count the replacements that hold; TVM's own way of calling a pass is back behind the last."""
    global _holding, _call
    with PATCHING:
        if _holding == 0:
            _call = Pass.__call__
        _holding += more
        Pass.__call__ = _call_replaced if _holding else _call


def _call_replaced(called: Pass, module: tvm.IRModule) -> tvm.IRModule:
    ours = REPLACING.get(_everywhere)
    if isinstance(ours, Replacement):
        called, *behind = _replaced(called, ours)
        called = Sequential([called, *behind]) if behind else called
    return _call(called, module)


def _replaced(one: Pass, by: Replacement, before: str = "") -> list[Pass]:
    """`one`, which stands behind the pass `before`, with ours beside it, or within it if it is a sequence."""
    if one.info.name == PLANNER:
        return [PlanMemory(by.options)]
    if not isinstance(one, Sequential):
        return [*_beside(one, before, names=by.names)]
    parts = list(one.passes)
    names = ["", *(str(part.info.name) for part in parts)]
    renewed = [ours for part, name in zip(parts, names, strict=False) for ours in _replaced(part, by, name)]
    if len(parts) == len(renewed) and all(map(Pass.same_as, parts, renewed)):
        return [one]
    info = one.info
    return [Sequential(renewed, info.opt_level, info.name, list(info.required), info.traceable)]

"""TVM's compilation pipelines with the memory planner of one's choice in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.relax.transform import ComputePrimValue
from tvm.target import Target

from symalloc.planner.memory_plan import PlanOptions
from symalloc.program.reading import PipelineName
from symalloc.relax.ir_types import BindingNode, elements
from symalloc.relax.passes.canonical_kernels import NameTensors, canonical_kernels
from symalloc.relax.passes.kill_on_paths import KillOnPaths
from symalloc.relax.passes.plan_pass import PlanMemory
from symalloc.relax.passes.sizes_and_guards import GatherSizes, LowerGuards
from symalloc.relax.passes.stages import (
    KILLS,
    OPAQUE,
    PLANNER,
    STORAGES_MADE,
    captures_graphs,
    opened,
    passes_run_by,
    passes_run_everywhere_by,
    run_pass,
    tvm_pipeline,
)
from symalloc.relax.rewrite import BindingRewriter, map_functions, with_functions
from symalloc.relax.source_spans import Places

_COPY = "vm.builtin.copy"  # gives what it is given, copied or not
_PROMISE = "tirx.noalias"
_NO_READERS = frozenset({"RewriteCUDAGraph", "LowerGPUIPCAllocStorage"})


class NoPlannerError(Exception):
    """A pipeline runs no pass that plans memory: there is no place for ours."""


tvm_ffi.register_error(NoPlannerError)  # or it leaves TVM's pass runner as a RuntimeError


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
    return _run_with(lambda: _Passes(options=options, names=names, places=names), target, pipeline)


def lower(
    module: tvm.IRModule, target: str | Target, *, pipeline: PipelineName | Pass = "default"
) -> tvm.IRModule:
    """`module` as it is where memory is planned: behind CallTIRRewrite, with the places of its calls."""
    return _run_with(lambda: _Passes(part="front", places=True), target, pipeline)(module)


def finishing_pipeline(
    target: str | Target, *, pipeline: PipelineName | Pass = "default", names: bool = False
) -> Pass:
    """The passes behind memory planning: what no planner has placed gets a storage each.

    `names`: with NameTensors.
    """
    return _run_with(lambda: _Passes(part="behind", names=names, places=names), target, pipeline)


@contextmanager
def replace_planner(options: PlanOptions, *, names: bool = False) -> Iterator[Mapping[str, str]]:
    """Within, pipelines that this thread runs plan with PlanMemory where TVM's planner stands.

    Gives what bounds="auto" stood for in each function so far.
    """
    passes = _Passes(options=options, names=names)
    with passes_run_by(passes.each):
        yield passes.picked


def replace_planner_everywhere(options: PlanOptions) -> None:
    """Let all threads do so from now on, except where `replace_planner` says otherwise."""
    passes_run_everywhere_by(_Passes(options=options).each)


def _run_with(
    passes: Callable[[], _Passes], target: str | Target | None, pipeline: PipelineName | Pass
) -> Pass:
    """`pipeline` as one pass, whose own passes are run by what `passes` makes."""
    fixed = None if target is None else Target(target)

    @tvm.transform.module_pass(opt_level=0, name="symalloc")  # type: ignore[untyped-decorator]
    def run(module: tvm.IRModule, _: PassContext) -> tvm.IRModule:
        now = fixed or Target.current(allow_none=True) or Target("llvm")
        whole = pipeline if isinstance(pipeline, Pass) else tvm_pipeline(now, pipeline)
        ours = passes()
        ours.given = frozenset(v.name_hint for v in module.get_global_vars())
        with now, passes_run_by(ours):
            behind: tvm.IRModule = (ours if isinstance(whole, Sequential) else run_pass)(whole, module)
        if PLANNER not in ours.met:
            ran = ", ".join(ours.met) or "nothing"
            raise NoPlannerError(f"the pipeline has no {PLANNER}, whose place is ours; it runs {ran}")
        return behind

    return run


@dataclass(slots=True, kw_only=True)
class _Passes:
    """Runs the passes that a pipeline calls, and ours beside them.

    PlanMemory with `options` stands where TVM's planner stands, and says what it has `picked`.  `part`: what
    stands on the other side of the planner is left out.
    `names`: tensors are named as soon as every storage is explicit.  `places`: up to there, what is allocated
    keeps the place that it comes from.  `given` are the names of the functions that the module had at first,
    `met` those of TVM's passes so far.
    """

    options: PlanOptions | None = None
    picked: dict[str, str] = field(default_factory=dict)
    part: Literal["whole", "front", "behind"] = "whole"
    names: bool = False
    places: bool = False
    given: frozenset[str] = frozenset()
    met: dict[str, None] = field(default_factory=dict)
    _places: Places | None = None

    def each(self, called: Pass, module: tvm.IRModule) -> tvm.IRModule:
        """The same of a module of its own: what it holds now was given."""
        ours = replace(self, given=frozenset(v.name_hint for v in module.get_global_vars()), met={})
        with passes_run_by(ours):
            return ours(called, module)

    def __call__(self, called: Pass, module: tvm.IRModule) -> tvm.IRModule:
        """`module` behind the pass or the sequence `called`."""
        before, passes = "", list(opened(called))
        for number, one in enumerate(passes, 1):
            for step in self._beside(one, before, passes[number:]):
                module = self._run(step, module)
            before = str(one.info.name)
        return module

    def _run(self, one: Pass, module: tvm.IRModule) -> tvm.IRModule:
        if self.places and self._places is None:
            self._places = Places()
            self._places.note(module)
        behind = run_pass(Sequential([one]), module)
        if one.info.name == "NameTensors":
            self.places, self._places = False, None
        return behind if self._places is None else self._places.restored(module, behind)

    def _beside(self, one: Pass, before: str, rest: Sequence[Pass]) -> Iterator[Pass]:
        """`one`, which stands between the pass `before` and the `rest`, and ours that belong to it.

        Not every pipeline has ComputePrimValue: none of TVM's plans has offsets to compute.
        """
        name, behind = str(one.info.name), PLANNER in self.met
        if name == OPAQUE:  # its own passes come here by themselves
            yield one
            return
        self.met.setdefault(name)
        if name == PLANNER:
            yield from self._planning(rest)
            return
        if self.part != "whole" and behind is (self.part == "front"):
            return
        if name == "RewriteCUDAGraph" and captures_graphs():
            yield KeepConditions()
        if name == "ComputePrimValue":
            yield from (LowerGuards(), GatherSizes())
        elif name == "VMShapeLower" and before != "ComputePrimValue":
            yield from (LowerGuards(), GatherSizes(), ComputePrimValue())
        if name != KILLS:  # KillOnPaths makes them
            yield one
        if name == "VMShapeLower":
            yield from (KillOnPaths(), PromiseNoAlias())
        if self.names and name == STORAGES_MADE:
            yield NameTensors()

    def _canonical(self, module: tvm.IRModule, _: PassContext) -> tvm.IRModule:
        return canonical_kernels(module, self.given)

    def _planning(self, rest: Sequence[Pass]) -> Iterator[Pass]:
        """Yield the passes in the place of TVM's planner."""
        if self.part != "behind":
            yield tvm.transform.module_pass(self._canonical, opt_level=0, name="CanonicalKernels")
        if self.options is not None:
            options = self.options
            if options.bounds == "auto":
                options = replace(options, read_by=_reader(rest))
            yield PlanMemory(options, self.picked)


def _reader(behind: Iterable[Pass]) -> str:
    """Return that a pass of somebody else stands where storages can be counted, as LLM compilers do; "" where
    none does.
    """
    for one in behind:
        if one.info.name == STORAGES_MADE:
            return ""
        if one.info.name not in _NO_READERS:
            return f"{one.info.name} may count storages"
    return "passes that may count storages can follow"


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
        return map_functions(module, lambda _, function: _ConditionKeeper().rewritten(function))


class _ConditionKeeper(BindingRewriter):
    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value = binding.value
        if type(value) is not relax.If:
            return [binding]
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
        for _, kernel in without:
            if sum(type(p.ty) is not tvm.ir.PrimType for p in elements(kernel.params)) > 1:
                return module
        return with_functions(module, {v: kernel.with_attr(_PROMISE, True) for v, kernel in without})

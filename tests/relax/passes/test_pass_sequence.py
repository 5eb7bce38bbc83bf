"""The passes of TVM's pipelines, as a list, for every target."""

from __future__ import annotations

import threading

import pytest
import tvm
from tvm.ir.instrument import pass_instrument
from tvm.ir.transform import Pass, PassContext, Sequential
from tvm.relax import transform
from tvm.target import Target

import symalloc
from symalloc.errors import UsageError
from symalloc.relax.passes.pass_sequence import (
    PLANNER,
    NoPlannerError,
    around_planner,
    passes_of,
    tvm_pipeline,
)
from tests.relax.emit.test_emit_function import lowered

EMPTY = tvm.IRModule()
WRAPPERS = ("_pipeline", "sequential", "symalloc")
TARGETS = ("llvm", "c", "cuda", "rocm", "opencl", "metal", "vulkan", "webgpu")


def names(passes: list[Pass]) -> list[str]:
    return [str(one.info.name) for one in passes]


def run_by(pipeline: Pass, target: Target) -> list[str]:
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
def test_the_list_is_what_tvm_runs(target: str) -> None:
    chosen = Target(target)
    own = tvm_pipeline(chosen, "target")
    assert names(passes_of(own, EMPTY, chosen)) == run_by(own, chosen)


def test_the_two_pipelines_differ_on_a_cpu_only() -> None:
    for target in TARGETS:
        chosen = Target(target)
        both = [names(passes_of(tvm_pipeline(chosen, n), EMPTY, chosen)) for n in ("default", "target")]
        assert (both[0] != both[1]) is (target == "llvm")


def test_planner_and_what_stands_around_it() -> None:
    parts = [
        transform.LegalizeOps(),
        Sequential([transform.StaticPlanBlockMemory()]),
        transform.VMShapeLower(),
    ]
    before, behind = around_planner(passes_of(Sequential(parts), EMPTY, Target("llvm")))
    assert (names(before), names(behind)) == (["LegalizeOps"], ["VMShapeLower"])


def test_a_pipeline_without_a_planner_is_refused() -> None:
    for pipeline in (Sequential([transform.LegalizeOps()]), transform.LegalizeOps()):
        with pytest.raises(NoPlannerError, match="no StaticPlanBlockMemory, whose place is ours; it runs "):
            around_planner(passes_of(pipeline, EMPTY, Target("llvm")))


def test_any_pipeline_with_a_planner_in_it_can_be_taken() -> None:
    """mlc-llm's, for instance: a function that lists its own passes, the planner among them."""

    @tvm.transform.module_pass(opt_level=0, name="theirs")
    def theirs(module: tvm.IRModule, _: PassContext) -> tvm.IRModule:
        module = Sequential([transform.LegalizeOps(), transform.StaticPlanBlockMemory()])(module)
        module = transform.LowerAllocTensor()(module)
        return Sequential([transform.KillAfterLastUse(), transform.LowerRuntimeBuiltin()])(module)

    module = symalloc.pipeline("llvm", pipeline=theirs)(lowered("Chain"))
    script = module.script()
    assert "R.vm.alloc_storage" in script
    assert "guard" in script or "assert_op" in script  # TVM's planner writes none


def test_other_threads_run_their_passes_while_one_is_looking() -> None:
    module = lowered("Chain")
    found: list[bool] = []

    def other() -> None:
        found.append(transform.LowerAllocTensor()(module).same_as(module))

    @tvm.transform.module_pass(opt_level=0)
    def slow(module: tvm.IRModule, _: PassContext) -> tvm.IRModule:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return transform.LegalizeOps()(module)

    assert names(passes_of(slow, EMPTY, Target("llvm"))) == ["LegalizeOps"]
    assert found == [False]


def test_a_pipeline_that_is_none() -> None:
    with pytest.raises(UsageError, match="pipeline is 'other'; it must be one of default, target"):
        symalloc.pipeline("llvm", pipeline="other")  # type: ignore[arg-type]


def test_instruments_see_each_pass_once() -> None:
    target = Target("llvm")
    ours, theirs = (run_by(p, target) for p in (symalloc.pipeline("llvm"), tvm_pipeline(target)))
    in_front = ["PlanMemory", "LowerGuards", "GatherSizes"]
    added = [*in_front, "KillOnPaths", "TrimCalls", "PromiseNoAlias"]
    assert [n for n in ours if n not in added] == [n for n in theirs if n != PLANNER]
    assert [n for n in ours if n in added] == added

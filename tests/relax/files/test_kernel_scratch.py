"""What kernels take for themselves: the formulas against the lowered kernels, and against a real process."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import tvm
from tvm import relax, tirx

import symalloc.relax.files.plan_file as subject
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_report.non_arena import KernelWorkspace, NonArenaMemory, non_arena_memory
from symalloc.program.reading import PipelineName
from symalloc.relax.extract import extract
from symalloc.relax.files.load import load_one
from symalloc.relax.files.plan_file import kernel_scratch
from symalloc.relax.passes.pipeline import lower
from tests.relax.built import WORKSPACES, graph
from tests.relax.built import lowered as lowered_of
from tests.relax.shrink.random_chains import random_chains
from tests.scale import tries

lowered = partial(lowered_of, scripts=WORKSPACES)
TO_LIFT = Path(__file__).parents[1] / "shrink" / "modules_to_lift.py"

# n stands in no parameter by itself, so that the compiled kernel could not know it
UNBOUND = """# script
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def half(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n * 2,), "float32")
        for i in range(n):
            A[i] = T.float32(0)
"""

# what a packed function gets it may call, with extents of its own
HANDED = """# script
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def doubled(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        C = T.alloc_buffer((n,), "float32", scope={scope!r})
        for i in range(n):
            C[i] = A[i] + A[i]
        for i in range(n):
            B[i] = C[i]

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Any:
        return R.call_packed("mylib.f", x, Module.doubled, ty_args=(R.Any,))
"""


def scratch_of(module: tvm.IRModule) -> dict[str, KernelWorkspace]:
    return kernel_scratch(module, extract(module, name="m", stage="CallTIRRewrite").kernels, "llvm")


def around(module: tvm.IRModule) -> NonArenaMemory:
    program = extract(module, name="m", stage="CallTIRRewrite")
    return non_arena_memory(program, analyse(program)["main"], scratch_of(module))


def test_formulas_are_those_of_the_lowered_kernels() -> None:
    found = scratch_of(lowered("Mixed"))
    assert {name: str(scratch.peak) for name, scratch in found.items()} == {
        "conv2d": "12*h*v + 24*h + 24*v + 48",  # the padded input
        "softmax": "0",  # small and static: on the stack
        "softmax1": "4*m*n + 4*m",  # the exponentials; maximum and sum share a row of memory
    }
    assert [step.size is None for step in found["softmax1"].steps] == [False] * 2 + [True] * 2


def test_what_a_host_takes_of_its_device_is_scratch_too() -> None:
    module = lower(graph(lambda _, x: relax.op.sort(x, axis=1), x=("n", 8)), "cuda")
    kernels = extract(module, name="m", stage="CallTIRRewrite").kernels
    assert str(kernel_scratch(module, kernels, "cuda")["sort"].peak) == "32*n"


def test_a_scalar_argument_can_size_scratch() -> None:
    module = lower(load_one(TO_LIFT, module="Extents"), "llvm")
    assert [str(use.nbytes) for use in around(module).kernels] == ["4*m*n + 4*n", "4*k*n"]


def test_loops_inside_a_kernel_are_told_apart() -> None:
    (found,) = scratch_of(WORKSPACES.Odd).values()
    assert (found.parallel, str(found.peak)) == (True, "4*n")
    assert not any(scratch.parallel for scratch in scratch_of(lowered("Mixed")).values())


def test_a_kernel_that_cannot_be_lowered_hides_no_other() -> None:
    module = lowered("Mixed").clone()
    for variable, function in tvm.script.from_source(UNBOUND, check_well_formed=False).functions.items():
        module.update_func(variable, function)
    found = scratch_of(module)
    assert "TVM cannot lower it: " in (found["half"].problem or "")
    assert str(found["conv2d"].peak) == "12*h*v + 24*h + 24*v + 48"


def test_kernels_that_are_handed_on_take_workspace_too() -> None:
    module = tvm.script.from_source(HANDED.format(scope="global"))
    assert str(scratch_of(module)["doubled"].peak) == "4*n", "an extent in int32"
    (use,) = around(module).kernels
    assert use.name == "doubled"
    assert use.problem == "its workspace depends on extents that the call leaves open"


def test_memory_of_threads_is_no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        subject, "_lowered_kernels", lambda functions, _: {v.name_hint: "no" for v in functions}
    )
    for scope, target in (("shared", "cuda"), ("shared", "llvm"), ("global", "cuda")):
        module = tvm.script.from_source(HANDED.format(scope=scope))
        found = kernel_scratch(module, extract(module, name="m").kernels, target)["doubled"]
        assert (found.problem is None) is ((scope, target) == ("shared", "cuda"))


def test_calls_bring_the_sizes_of_the_caller_and_what_is_returned_or_made_is_told() -> None:
    found = around(lowered("Calls"))
    assert [(use.name, use.calls, str(use.nbytes)) for use in found.kernels] == [
        ("softmax", 1, "68*n"),
        ("softmax", 1, "136*n"),
    ]
    # the parameter in the middle is nobody's memory of ours; of the two sides of the If one is returned
    assert [str(r.nbytes) for r in found.returned] == ["128", "64*n"]
    assert [len(r.allocations) for r in found.returned] == [1, 2]
    assert [(made.by, str(made.nbytes)) for made in found.made] == [("layer", "64*n"), ("layer", "128*n")]
    program = extract(lowered("Calls"), name="m", stage="CallTIRRewrite")
    assert Timeline.of(program, "main").unseen == ("nobody.knows",)


@pytest.mark.parametrize("pipeline", ["default", "target"])
def test_the_workspace_of_random_kernels_is_read(pipeline: PipelineName) -> None:
    """`benchmarks/workspace_calls.py` asks for that of 500 calls of any operator, and runs some."""
    for seed in range(tries(1, 20)):
        found = scratch_of(lower(random_chains(seed, 6).module, "llvm", pipeline=pipeline))
        assert found and {one.problem for one in found.values()} == {None}


def test_what_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever TVM's passes make of a kernel: nothing of it, or calls with other arguments."""
    module = lowered("Mixed")
    left = {"softmax": tirx.PrimFunc([], tirx.Evaluate(tirx.call_intrin("int32", subject.FREE)))}
    monkeypatch.setattr(subject, "_lowered_kernels", lambda *_: left)
    problems = {name: one.problem or "" for name, one in scratch_of(module).items()}
    assert "leaves no function" in problems["conv2d"]
    assert "not understood" in problems["softmax"]

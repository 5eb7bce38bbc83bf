"""Modules planned within their declared bounds: run at, below and past them, and behind RewriteCUDAGraph."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.errors import RunError
from symalloc.planner.memory_plan import BoundsUse, Flavour, GuardKind, PlanOptions
from symalloc.relax.files.load import load_one
from symalloc.relax.passes.pipeline import lower, pipeline
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.run.runner import Runner
from tests.relax.built import graph
from tests.scale import pairs

ATTENTION = Path(__file__).parents[3] / "examples" / "attention.py"


@pytest.mark.parametrize(
    ("kind", "guards"),
    pairs(pairs(["enforce", "reserve"], ["arena", "storages"]), ["assert", "native", "fallback"]),
)
def test_within_the_bounds_bits_are_equal_and_past_them_the_check_decides(
    kind: tuple[BoundsUse, Flavour], guards: GuardKind
) -> None:
    options = PlanOptions(bounds=kind[0], flavour=kind[1], guards=guards)
    runner = Runner(load_one(ATTENTION), options=options)
    assert [runner.run({"n": n}, check=True).difference for n in (0, 5, 512)] == [None] * 3
    if guards == "fallback":
        assert runner.run({"n": 513}, check=True).difference is None
    else:
        said = "need n <= 512" if guards == "native" else "got n = 513; need n <= 512"
        with pytest.raises(RunError, match=rf"outside of the bounds that it declares.*{said}"):
            runner.run({"n": 513})


@cache
def capturable() -> tvm.IRModule:
    """Attention, lowered, whose `n` may stand in what is captured."""
    module = load_one(ATTENTION)
    names = ["n"]
    module["main"] = module["main"].with_attr("relax.rewrite_cuda_graph.capture_symbolic_vars", names)
    return lower(module, "llvm")


def captured(module: tvm.IRModule) -> tuple[int, int]:
    """The regions that RewriteCUDAGraph captures, and the kernels that are called in them."""
    with tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        rewritten = relax.transform.RewriteCUDAGraph()(module)
    found: list[str] = []

    def note(call: object) -> None:
        if isinstance(call, tvm.ir.Call) and isinstance(call.op, tvm.ir.GlobalVar):
            found.append(call.op.name_hint)

    regions = [f for v, f in rewritten.functions_items() if "cuda_graph_capture" in v.name_hint]
    for region in regions:
        relax.analysis.post_order_visit(region, note)
    return len(regions), len(found)


@pytest.mark.parametrize("keeps_reshapes", [False, True])
@pytest.mark.parametrize("guards", ["assert", "native"])
def test_as_much_is_captured_as_behind_the_planner_of_tvm(guards: GuardKind, keeps_reshapes: bool) -> None:
    options = PlanOptions(bounds="reserve", guards=guards)
    ours = plan_lowered(capturable(), options=options, keeps_reshapes=keeps_reshapes).module
    assert captured(ours) == captured(relax.transform.StaticPlanBlockMemory()(capturable())) == (1, 3)


@pytest.mark.parametrize("guards", ["assert", "native"])
def test_a_check_is_never_captured(guards: GuardKind) -> None:
    ours = plan_lowered(capturable(), options=PlanOptions(bounds="enforce", guards=guards)).module
    assert captured(ours) == (0, 0), "arenas are formulas, so there is nothing that can be captured"


TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})


# the matrix between has extents of two empty ones
PRODUCT = graph(
    lambda emit, x, y: relax.op.sum(emit(relax.op.exp(emit(relax.op.matmul(x, y))))), x=("m", 0), y=(0, "n")
)


@cache
def machine(guards: GuardKind) -> relax.VirtualMachine:
    passes = pipeline(TARGET, options=PlanOptions(guards=guards))
    return relax.VirtualMachine(relax.build(PRODUCT, TARGET, relax_pipeline=passes), tvm.cpu())


@pytest.mark.parametrize(("guards", "kind"), [("assert", AssertionError), ("native", ValueError)])
@pytest.mark.parametrize(("m", "n"), [(2**60, 3), (3, 2**60), (2**40, 2**40)])
def test_the_message_is_of_a_check_that_fails(
    guards: GuardKind, kind: type[Exception], m: int, n: int
) -> None:
    with pytest.raises(kind, match="; need ") as raised:
        machine(guards)["main"](*(tvm.runtime.tensor(np.zeros(s, "float32")) for s in ((m, 0), (0, n))))
    said, _, need = str(raised.value).rpartition("; need ")
    assert said.endswith(f"got m = {m}, n = {n}") is (guards == "assert")
    assert not eval(need.splitlines()[0], {"min": min, "max": max}, {"m": m, "n": n}), need

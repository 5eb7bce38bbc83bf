"""Small modules planned for targets of every kind: code is generated, and what was not run says so."""

from __future__ import annotations

import re

import pytest
import tvm
from tvm import relax
from tvm.target import Target

import symalloc
from symalloc.errors import RunError
from symalloc.relax.files.load import device_kind, generates_code, target_of, target_report, why_not_run
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.run.runner import Runner
from tests.relax.built import MODULES, lowered

CUDA: dict[str, object] = {"kind": "cuda", "arch": "sm_80"}
DEVICES = {"cuda": CUDA, **{kind: {"kind": kind} for kind in ("opencl", "metal", "webgpu", "vulkan")}}
# how each names the offset of the tensor that `transpose` writes, in the code of the device
OFFSET = dict.fromkeys(("cuda", "opencl"), "+ T_transpose_offset") | {"metal": "+ arg.T_transpose_offset"}
MODULE = MODULES.Prepared


def sources(built: object) -> str:
    """The code of all modules that a module imports, and of those that they import."""
    found = [built.inspect_source()] if built.kind in DEVICES else []  # type: ignore[attr-defined]
    return "\n".join([*found, *(sources(each) for each in built.imports)])  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", DEVICES)
def test_code_is_generated_and_offsets_are_arguments_of_kernels(kind: str) -> None:
    target = Target(DEVICES[kind])
    if not generates_code(target):
        pytest.skip(f"this build of TVM generates no code for {kind}")
    built = relax.build(MODULE, target, relax_pipeline=symalloc.pipeline(target))
    text, code = built.as_text(), sources(built.mod)
    assert "transpose_kernel" in code
    assert "ensure_zero_offset" not in text
    assert (OFFSET.get(kind, "T_transpose_offset") in code) is (kind in OFFSET)
    assert text.count("vm.builtin.alloc_storage") < text.count("vm.builtin.alloc_tensor")


def test_the_host_takes_the_offset_from_the_tensor() -> None:
    """It refuses one that is no multiple of 64 B, which the device code relies on."""
    planned = plan_lowered(lower(MODULE, Target(CUDA)), target=Target(CUDA)).module
    kernel = planned["transpose"].with_attr("global_symbol", "transpose")
    host = tvm.tirx.build(tvm.IRModule({"transpose": kernel}), Target(CUDA, host="c")).inspect_source()
    assert re.search(r"T_transpose_offset = .*byte_offset\) / \(uint64_t\)4ULL", host)
    assert "T_transpose_offset % (int64_t)16) == (int64_t)0" in host


@pytest.mark.parametrize("kind", ["metal", "webgpu", "vulkan"])
def test_the_report_says_what_was_not_run(kind: str) -> None:
    target = Target(DEVICES[kind])
    planned = plan_lowered(lower(MODULE, target), target=target)
    found = target_report(planned, "main", target)
    assert found is not None
    assert (found.name, found.generated) == (kind, kind != "vulkan")
    assert found.flavour == ("storages" if kind == "webgpu" else "arena")
    assert (found.offset_kernels > 0) is (kind != "webgpu")
    assert found.kernels >= found.offset_kernels
    assert found.grounded == 0


def test_a_tensor_that_is_sorted_starts_a_storage() -> None:
    """The kernel is not scheduled: it hands the tensor on."""
    target = Target("opencl")
    found = target_report(plan_lowered(lowered("Sorted"), target=target), "main", target)
    assert found is not None and found.grounded == 2


def test_a_cpu_needs_no_report() -> None:
    runner = Runner(MODULE, target="c")
    assert runner.run({"n": 5}, check=True).difference is None
    assert why_not_run(Target("c")) is None
    target = Target("llvm")
    assert target_report(plan_lowered(lower(MODULE, target), target=target), "main", target) is None


@pytest.mark.parametrize(
    ("kind", "words"), [("cuda", "it needs a device"), ("vulkan", "generates no code for vulkan")]
)
def test_nothing_is_run_without_a_device(kind: str, words: str) -> None:
    assert words in (why_not_run(Target(DEVICES[kind])) or "")
    with pytest.raises(RunError, match=f"nothing can be run for the target '{kind}'.*{words}"):
        Runner(MODULE, target=kind)


def test_branches_on_a_device_lint_clean_at_the_last_stage() -> None:
    last = symalloc.pipeline("opencl")(MODULES.Branches)
    assert not [d for d in symalloc.lint(last, stage="as-is") if d.severity != "note"]


def test_kernels_that_are_bound_to_a_device_say_for_which_a_module_is_planned() -> None:
    target = Target({**CUDA, "max_num_threads": 1024})
    lowered = lower(MODULE, target, pipeline="target")
    with target:
        bound = tvm.tirx.transform.BindTarget(target)(lowered)
    assert device_kind(target_of(bound, "llvm")) == "cuda"
    assert [target_of(lowered, "llvm"), target_of(bound, "opencl")] == ["llvm", "opencl"]

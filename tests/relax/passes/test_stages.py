"""TVM's own pipeline, pass by pass."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import tvm
from tvm import relax

from symalloc.relax.passes.stages import (
    Lowered,
    PassFailedError,
    UnknownPassError,
    WantedStages,
    has_memory_operations,
    instrument,
    lower,
    wanted_stages,
)
from tests.modules import sum_squared


def stages(stage: Any, mod: Any, target: str = "llvm") -> list[Lowered]:
    kept: list[Lowered] = []
    _, wanted = wanted_stages(stage, has_memory_operations(mod))
    if wanted is not None:
        lower(mod, target, wanted=wanted, keep=kept.append)
    return kept


def recording(ran: list[str]) -> Any:
    return instrument("Recorder", run_before_pass=lambda _, info: ran.append(str(info.name)))


def test_all_are_the_passes_that_tvm_itself_runs() -> None:
    ran: list[str] = []
    with tvm.transform.PassContext(instruments=[recording(ran)]):
        relax.build(sum_squared(), target="llvm")
    first, last = ran.index("CallTIRRewrite"), ran.index("AttachGlobalSymbol")
    passes = [name for name in ran[first : last + 1] if name != "NormalizeGlobalVar"]  # inside another one
    assert [lowered.stage for lowered in stages("all", sum_squared())] == passes


@pytest.mark.parametrize("target", ["llvm", "cuda", "vulkan"])
def test_a_pass_that_would_run_kernels_is_run_by_no_other_one(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[str]()
    context = partial(tvm.transform.PassContext, instruments=[recording(ran)])
    monkeypatch.setattr(tvm.transform, "PassContext", context)
    wanted = WantedStages(first="CallTIRRewrite")
    lower(sum_squared(), target, wanted=wanted, keep=lambda _: None, pipeline="target")
    assert "FuseOps" in ran
    assert "FoldConstant" not in ran


def test_nothing_behind_the_last_wanted_pass_runs() -> None:
    seen: list[str] = []
    wanted = WantedStages(("CallTIRRewrite",))
    lower(sum_squared(), "llvm", wanted=wanted, keep=lambda _: None, entering=seen.append)
    assert seen[-1] == "CallTIRRewrite"


def test_a_pass_that_does_not_exist() -> None:
    with pytest.raises(UnknownPassError, match="no pass Vmshapelower") as caught:
        lower(sum_squared(), "llvm", wanted=WantedStages(("Vmshapelower",)), keep=lambda _: None)
    assert "VMShapeLower" in caught.value.passes
    assert "sequential" not in caught.value.passes


def test_the_module_given_is_not_changed() -> None:
    mod = sum_squared()
    before = mod.script()
    stages("all", mod)
    assert mod.script() == before


def test_a_pass_that_fails_is_named() -> None:
    mod = sum_squared()
    mod["main"] = mod["main"].with_attr("tir_var_upper_bound", "no map")
    with pytest.raises(PassFailedError, match=r"upper_bound|[Mm]ap") as caught:
        stages("auto", mod)
    assert caught.value.stage == "StaticPlanBlockMemory"
    assert "File" not in str(caught.value)
    with pytest.raises(PassFailedError) as caught:
        stages("auto", sum_squared(), target="nonsense")
    assert caught.value.stage == ""  # there is no such target


def test_memory_operations_inside_a_branch_are_seen() -> None:
    function = stages("auto", sum_squared())[0].mod["main"]
    branch = relax.If(relax.const(True, "bool"), function.body, function.body)
    binding = relax.VarBinding(relax.Var("z", relax.AnyType()), branch)
    body = relax.SeqExpr([relax.BindingBlock([binding])], binding.var)
    outer = relax.Function(function.params, body, relax.AnyType(), is_pure=False)
    assert has_memory_operations(tvm.IRModule({"main": outer}))

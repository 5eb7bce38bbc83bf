"""VerifyMemory inside TVM's pass runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax

from symalloc.relax.files.load import load_one
from symalloc.relax.passes.stages import (
    MemoryFault,
    VerificationError,
    VerificationWarning,
    make_instrument,
)
from symalloc.session.linting import VerifyMemory
from tests.modules import FAULTY
from tests.relax.built import MODULES

MUSEUM = Path(__file__).parents[2] / "museum" / "modules"
HEAD = "from tvm.script import ir as I, relax as R, tirx as T\n\n"
OVERRUN = HEAD + FAULTY.replace("alloc, ty_args", "x, alloc, ty_args").replace(
    "return filled", "return alloc"
)


def build(name: str, instrument: Any, pipe: Any = "default") -> None:
    with tvm.transform.PassContext(instruments=[instrument]):
        relax.build(getattr(MODULES, name), "llvm", relax_pipeline=pipe)


def test_the_pass_that_brings_a_fault_in_is_named() -> None:
    """apache/tvm#20191: what StaticPlanBlockMemory makes of an If."""
    verify = VerifyMemory()
    with pytest.raises(VerificationError) as caught:
        build("Branches", verify)
    text = str(caught.value)
    assert text.startswith("StaticPlanBlockMemory brings in ")
    assert "SYM204" in text and "but not every path allocates it" in text
    build("Chain", verify)  # the instrument starts afresh, and TVM is usable
    assert not tvm.transform.PassContext.current().instruments


def test_what_tvm_plans_rightly_passes_and_rules_can_be_left_out() -> None:
    for name in ("Chain", "Tuples", "InPlace", "Reshapes", "Calls"):
        build(name, VerifyMemory())
    build("Branches", VerifyMemory(ignore=["SYM2"]))


def test_warn_lets_the_build_go_on() -> None:
    with pytest.warns(VerificationWarning) as caught:
        build("Branches", VerifyMemory(mode="warn"))
    texts = [str(w.message) for w in caught]
    assert texts[0].startswith("StaticPlanBlockMemory brings in ")
    assert sum("SYM204" in text for text in texts) == 1, "later passes are not charged with it again"


def test_what_a_pass_makes_doubtful_is_a_warning_that_names_it() -> None:
    """StaticPlanBlockMemory reuses a tensor that `test.keep` may have handed on."""
    module = load_one(MUSEUM / "packed_returns_argument.py")
    with pytest.warns(VerificationWarning) as caught, tvm.transform.PassContext(instruments=[VerifyMemory()]):
        relax.build(module, "llvm")
    (text,) = [str(w.message) for w in caught]
    assert text.startswith("StaticPlanBlockMemory brings in a possible memory fault (SYM203):\n")
    assert "`test.keep` may return its argument" in text


def test_a_warning_does_not_hide_an_error() -> None:
    kinds = (("W1", False), ("E1", True))
    faults = [MemoryFault(rule=r, function="main", text=f"{r} text", error=e) for r, e in kinds]

    def check(_: tvm.IRModule, stage: str) -> list[MemoryFault]:
        return faults if stage == "KillAfterLastUse" else []

    said = r"^KillAfterLastUse brings in a {}memory fault \({}\)"
    with (
        pytest.warns(VerificationWarning, match=said.format("possible ", "W1")),
        pytest.raises(VerificationError, match=said.format("", "E1")),
    ):
        build("Chain", make_instrument(check))


def test_a_fault_is_charged_to_the_innermost_pass_that_makes_it() -> None:
    broken = load_one(Path("overrun.py"), data=OVERRUN.encode())
    with tvm.transform.PassContext(instruments=[VerifyMemory()]):
        relax.transform.KillAfterLastUse()(broken)  # it was there before

    @tvm.transform.module_pass(opt_level=0, name="Breaks")
    def breaks(_: tvm.IRModule, __: tvm.transform.PassContext) -> tvm.IRModule:
        return broken

    @tvm.transform.module_pass(opt_level=0, name="Outer")
    def outer(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return tvm.transform.Sequential([relax.transform.LowerAllocTensor(), breaks])(module)

    with (
        pytest.raises(VerificationError, match=r"^Breaks brings in a memory fault \(SYM101\)"),
        tvm.transform.PassContext(instruments=[VerifyMemory()]),
    ):
        outer(MODULES.Chain)


def test_modules_without_memory_operations_are_not_checked() -> None:
    asked: list[str] = []

    def check(_: tvm.IRModule, stage: str) -> list[MemoryFault]:
        asked.append(stage)
        return []

    build("Chain", make_instrument(check))
    assert asked[0] == "StaticPlanBlockMemory"
    assert "AttachGlobalSymbol" in asked, "the last pass of the pipeline"
    assert "LegalizeOps" not in asked

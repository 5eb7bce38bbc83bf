"""Checks at the entry of a function as part of the function that computes its shapes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir.transform import Sequential
from tvm.relax.transform import AttachGlobalSymbol, ComputePrimValue, VMShapeLower
from tvm.script import from_source

from symalloc.relax.passes.fold_checks import FoldChecks
from symalloc.relax.passes.lower_guards import LowerGuards

_MODULE = """
@I.ir_module
class Sizes:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        {}
"""
_CALL = 'R.call_packed("relax.run.assert_op", R.prim_value({0} <= {1}), R.str("{0} is {{}}"), {2})'


def bound(symbol: str, most: object) -> str:
    return _CALL.format(symbol, most, f"R.prim_value({symbol}), ty_args=(R.Tuple,)")


def lowered(*lines: str) -> tvm.IRModule:
    module = from_source(_MODULE.format("\n        ".join(lines)))
    return Sequential([LowerGuards(), ComputePrimValue(), VMShapeLower()])(module)


def calls(module: tvm.IRModule) -> list[str]:
    """What `main` calls that is no builtin of the machine, and the scalars that it makes."""
    return re.findall(R"cls\.(\w+)\(|(make_prim_value)", module.script())


def called(module: tvm.IRModule) -> list[str]:
    return [kernel or builtin for kernel, builtin in calls(module)]


def run(module: tvm.IRModule, *extents: int) -> list[int]:
    machine = relax.VirtualMachine(
        relax.build(module, "llvm", relax_pipeline=AttachGlobalSymbol()), tvm.cpu()
    )
    return list(machine["main"](tvm.runtime.tensor(np.zeros(extents, "float32"))))


TWO = (f"_ = {bound('n', 8)}", f"_1 = {bound('m', 'n')}", "return R.shape([n * m])")


def test_checks_stand_in_front_of_what_is_stored() -> None:
    before = lowered(*TWO)
    after = FoldChecks()(before)
    assert called(before).count("make_prim_value") == 3
    assert called(after) == ["main_check"]
    assert {v.name_hint for v in after.get_global_vars()} == {"main", "main_check"}
    script = after["main_check"].script()
    assert script.index("n is") < script.index("m is") < script.index("] = ")


def test_the_same_shapes_are_refused_in_the_same_words() -> None:
    for module in (lowered(*TWO), FoldChecks()(lowered(*TWO))):
        module["main"] = module["main"].with_attr("global_symbol", "main")
        assert run(module, 8, 3) == [24]
        with pytest.raises(AssertionError, match="n is 9"):
            run(module, 9, 10)
        with pytest.raises(AssertionError, match="m is 4"):
            run(module, 3, 4)


def test_without_shapes_to_compute_the_check_reads_the_heap_itself() -> None:
    after = FoldChecks()(lowered(f"_ = {bound('n', 8)}", "return R.shape([n, m])"))
    assert called(after) == ["main_check"]
    assert "H: T.Buffer" in after["main_check"].script()


def test_a_scalar_that_is_used_again_stays() -> None:
    lines = ("k = R.prim_value(n)", f"_ = {bound('n', 8)}", "_1 = R.call_packed('f', k, ty_args=(R.Tuple,))")
    after = FoldChecks()(lowered(*lines, "return R.shape([n * m])"))
    assert called(after) == ["main_check", "make_prim_value"]
    assert relax.analysis.check_well_formed(after)


def test_a_check_behind_another_call_stays_where_it_is() -> None:
    lines = ("_ = R.call_packed('f', ty_args=(R.Tuple,))", f"_1 = {bound('n', 8)}", "return R.shape([n * m])")
    module = lowered(*lines)
    assert FoldChecks()(module).same_as(module)

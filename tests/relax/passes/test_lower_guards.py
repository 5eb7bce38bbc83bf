"""The check at a function's entry as a kernel."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.relax.extract.kernel_walk import ASSERT
from symalloc.relax.passes.pipeline import PromiseNoAlias, finishing_pipeline, lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.passes.sizes_and_guards import LowerGuards
from tests.relax.built import bits, graph, lowered


def names(module: tvm.IRModule) -> set[str]:
    return {variable.name_hint for variable in module.get_global_vars()}


def test_a_plan_holds_its_check_as_a_kernel_over_the_symbols() -> None:
    before = lowered("Branches")
    after = plan_lowered(before).module
    added = names(after) - names(before)
    assert added == {"main_check"} and ASSERT not in after["main"].script()
    check = after["main"].body.blocks[0].bindings[0].value
    assert check.op.global_symbol == after["main_check"].attrs["global_symbol"] == "main_check"
    assert [p.name for p in after["main_check"].params] == [a.name for a in check.args] == ["n"]
    assert "main_check" in names(relax.transform.DeadCodeElimination()(after))


def test_the_name_of_the_kernel_is_one_that_nobody_has() -> None:
    module = lowered("Branches")
    module["main_check"] = module[next(n for n in names(module) if n != "main")]
    assert names(plan_lowered(module).module) - names(module) == {"main_check_1"}


_ELSEWHERE = """
@I.ir_module
class Elsewhere:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["k"]), c: R.Tensor((), "bool")):
        n, k = T.int64(), T.int64()
        y = R.exp(x)
        R.assert_op(n <= 2 * k, [n, 2 * k], format="got {}, of {} at most")
        if c:
            R.assert_op(n <= k, [k, n], format="{1} is more than {0}")
            z = R.exp(y)
        else:
            R.assert_op(n <= 3 * k, [n], format="")
            R.assert_op(n <= 4 * k, [n], format="{:d}")
            R.assert_op(n <= 5 * k, [x], format="{}")
            z = y
        return z
"""


def test_assertions_of_the_author_are_lowered_wherever_they_stand() -> None:
    module = lower(tvm.script.from_source(_ELSEWHERE), "llvm")
    built = relax.build(module, "llvm", relax_pipeline=finishing_pipeline("llvm"))
    module = LowerGuards()(module)
    checks = [module[f"main_check{number}"] for number in ("", "_1", "_2", "_3")]
    texts = [str(check.body.seq[1].message_parts[0].value) for check in checks]
    assert texts == ["got n, of 2*k at most", "n is more than k", "n", "{:d}"]
    assert module["main"].script().count(ASSERT) == 1, "one shows a tensor"
    made = relax.VirtualMachine(built, tvm.cpu())
    for k, said in ((1, "got 3, of 2 at most"), (2, "3 is more than 2")):
        with pytest.raises(AssertionError, match=said):
            bits(made, np.zeros((3, 4), "float32"), tvm.runtime.ShapeTuple([k]), np.array(True))


_KERNELS = """
@I.ir_module
class Kernels:
    @T.prim_func(s_tir=True)
    def fill(x: T.Buffer((4,), "float32"), n: T.float32):
        for i in range(4):
            x[i] = n

    @T.prim_func(s_tir=True)
    def move(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i]
"""


def promised(module: tvm.IRModule) -> set[str]:
    kernels = ((v.name_hint, f) for v, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc))
    return {name for name, f in kernels if f.attrs is not None and f.attrs.get("tirx.noalias")}


def assembly(module: Any) -> str:
    """What LLVM has made of all kernels."""
    own = module.inspect_source("ll") if module.kind == "llvm" else ""
    return str(own) + "".join(map(assembly, module.imports))


def test_what_follows_the_kernels_does_not_take_their_promise() -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        y = emit(relax.op.add(x, x))
        return relax.op.add(emit(relax.op.add(y, x)), emit(relax.op.add(x, y)))

    with tvm.target.Target("llvm"):  # all kernels are compiled here, as a whole (tests/compile_once.py)
        built = relax.build(graph(write, x=("n", 8)), "llvm", relax_pipeline=symalloc.pipeline("llvm"))
    entries = re.findall(r"define dllexport .*@__tvm_ffi_(\w+)\(ptr (noalias)?", assembly(built.mod))
    assert max(name for name, _ in entries) == "shape_func"
    assert all(promise for _, promise in entries)


def test_kernels_promise_that_buffers_are_apart_where_none_may_be_given_one_tensor_twice() -> None:
    module, alone = (tvm.script.from_source(_KERNELS) for _ in "ab")
    assert PromiseNoAlias()(module).same_as(module)
    module["move"] = module["move"].with_attr("tirx.noalias", True)
    once = PromiseNoAlias()(module)
    assert promised(once) == {"fill", "move"}
    assert PromiseNoAlias()(once).same_as(once)
    del alone["move"]
    assert promised(PromiseNoAlias()(alone)) == {"fill"}

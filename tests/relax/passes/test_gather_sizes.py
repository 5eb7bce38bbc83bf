"""GatherSizes: what is computed at entry, what is left to ComputePrimValue, and that results stay."""

# ruff: noqa: N805
from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import symalloc
from symalloc.relax.passes.sizes_and_guards import GatherSizes


@I.ir_module
class Sizes:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m, k = T.int64(), T.int64(), T.int64()
        a = R.call_packed("first", x, R.prim_value(n * 4), ty_args=R.Tensor((n, m), "float32"))
        b = R.call_packed("second", a, R.prim_value(n * 4), R.prim_value(n // m), ty_args=R.Tensor(ndim=2))
        c = R.match_cast(b, R.Tensor((k, 3), "float32"))
        return R.call_packed("third", c, R.prim_value(k * 2), R.prim_value(m + 1), ty_args=R.Any)


def test_sizes_known_at_entry_are_computed_once_and_those_that_may_divide_by_zero_stay() -> None:
    script = GatherSizes()(Sizes)["main"].script()
    assert script.count("n * 4") == 1
    assert script.count("m + 1") == 1
    assert "R.shape([n * 4, m + 1])" in script
    assert "n // m" in script.split("first")[1]  # in front of the call
    assert "k * 2" in script.split("match_cast")[-1]


def test_a_module_without_sizes_stays_as_it_is() -> None:
    @I.ir_module
    class Plain:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            return R.call_packed("first", x, ty_args=R.Any)

    assert GatherSizes()(Plain)["main"].same_as(Plain["main"])


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        a = R.exp(x)
        b = R.concat([a, a], axis=1)
        c = R.tanh(b)
        d = R.strided_slice(c, axes=[1], begin=[4], end=[12])
        e = R.add(d, a)
        return R.multiply(e, d)


def test_a_planned_module_computes_the_same_without_a_function_for_each_offset() -> None:
    built = relax.build(Chain, "llvm", relax_pipeline=symalloc.pipeline("llvm"))
    stock = relax.build(Chain, "llvm", relax_pipeline="default")
    x = tvm.runtime.tensor(np.random.default_rng(0).random((5, 8), dtype="float32"))
    results = [relax.VirtualMachine(one, tvm.cpu())["main"](x).numpy() for one in (built, stock)]
    assert results[0].tobytes() == results[1].tobytes()
    assert "compute_symbolic_expr" not in built.as_text()

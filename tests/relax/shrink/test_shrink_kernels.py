"""Smaller kernels in plans: what is saved, what stays as it is, and what the linter says of them."""

from __future__ import annotations

import pytest
import tvm_ffi
from tvm import tirx
from tvm.script import from_source

import symalloc
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.shrink.kernel_stages import stages_of
from tests.relax.shrink.compared import shrunk

MODULE = """
@I.ir_module
class Attention:
    @R.function
    def main(x: R.Tensor(("n", "n"), "float32"), w: R.Tensor(("n", "n"), "float32")):
        with R.dataflow():
            product = R.matmul(x, w)
            scores = R.add(product, x)
            weights = R.nn.softmax(scores)
            result = R.nn.gelu(weights)
            R.output(result)
        return result
"""
KERNELS = """
@I.ir_module
class Kernels:
    @T.prim_func(private=True, s_tir=True)
    def parallel(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        C = T.sblock_alloc_buffer((8, 8), "float32")
        for i in T.parallel(8):
            for j in range(8):
                with T.sblock("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi, vj] + T.float32(1)
        for i, j in T.grid(8, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = C[vi, vj] * T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def by_data(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
        C = T.sblock_alloc_buffer((8,), "int64")
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.spatial(8, i)
                C[A[vi]] = vi
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = C[vi]

    @T.prim_func(private=True, s_tir=True)
    def read_in_reverse(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        C = T.sblock_alloc_buffer((8,), "float32")
        D = T.sblock_alloc_buffer((8,), "float32")
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = T.exp(A[vi])
        for i in range(8):
            with T.sblock("D"):
                vi = T.axis.spatial(8, i)
                D[vi] = C[7 - vi] + C[vi]
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = D[vi] + C[7 - vi]

    @T.prim_func(private=True, s_tir=True)
    def product_in_sum(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        C = T.sblock_alloc_buffer((8,), "float32")
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[vi] * A[vi]
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = C[vi] + A[vi]

    @T.prim_func(private=True, s_tir=True)
    def rounded(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        C = T.sblock_alloc_buffer((8,), "bfloat16")
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = T.Cast("bfloat16", A[vi])
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.Cast("float32", C[vi])

    @T.prim_func(private=True, s_tir=True)
    def times_one(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        C = T.sblock_alloc_buffer((8,), "float32")
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[vi] * A[vi]
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = C[vi] * T.float32(1) + A[vi]

    @T.prim_func(private=True, s_tir=True)
    def in_condition(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        C = T.sblock_alloc_buffer((8,), "float32")
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[vi] * A[vi]
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = T.Select(C[vi] + A[vi] > T.float32(0), T.float32(1), T.float32(2))

    @T.prim_func(private=True, s_tir=True)
    def twice(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        C = T.sblock_alloc_buffer((8,), "float32")
        for k, i in T.grid(2, 8):
            with T.sblock("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = T.exp(A[vi])
        for k, i in T.grid(2, 8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = C[vi] + T.float32(1)

    @T.prim_func(private=True, s_tir=True)
    def no_init(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
        C = T.sblock_alloc_buffer((8,), "float32")
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = T.float32(0)
        for i, k in T.grid(8, 4):
            with T.sblock("D"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = C[vi] * T.float32(2)
"""


@pytest.mark.parametrize("level", ["safe", "full"])
def test_what_is_saved_is_what_kernels_take_less(level: str) -> None:
    module = from_source(MODULE)
    plain, small = (symalloc.plan(module, shrink=one, pipeline="target") for one in ("none", level))
    (report,) = small.report.reports
    (before,) = plain.report.reports
    assert not before.outside.shrunk
    assert {kernel.name for kernel in report.outside.shrunk} == {one.name for one in before.outside.kernels}
    taken = {use.name: use.nbytes for use in before.outside.kernels}
    assert all(kernel.before == taken[kernel.name] for kernel in report.outside.shrunk)
    now = {use.name: use.nbytes for use in report.outside.kernels}
    assert all(size.evaluate({"n": 64}) < taken[name].evaluate({"n": 64}) for name, size in now.items())
    assert small.at(n=64).workspace < plain.at(n=64).workspace
    assert "kernels shrunk:" in str(small)
    found = symalloc.lint(small.module, stage="as-is")
    assert [d for d in found if d.severity != "note"] == []


@pytest.mark.parametrize(
    ("name", "stages", "left"),
    [
        ("parallel", None, 1),
        ("by_data", None, 1),
        ("read_in_reverse", 2, 1),
        ("product_in_sum", 2, 0),
        ("rounded", 2, 1),
        ("times_one", 2, 0),
        ("in_condition", 2, 0),
        ("twice", 2, 1),
        ("no_init", 3, 1),
    ],
)
def test_what_stays(name: str, stages: int | None, left: int) -> None:
    kernels = from_source(KERNELS)
    kernel = shrunk(kernels, "full")[0][name]
    found = stages_of(kernel)
    assert (None if found is None else len(found)) == stages
    assert len(kernel.body.block.alloc_buffers) == left


def test_the_pass_and_the_option_do_the_same() -> None:
    lowered = lower(from_source(MODULE), "llvm", pipeline="target")
    passed = symalloc.ShrinkKernels("safe")(lowered)
    kernels = [f for f in passed.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert kernels
    assert tvm_ffi.structural_equal(passed, shrunk(lowered, "safe")[0])

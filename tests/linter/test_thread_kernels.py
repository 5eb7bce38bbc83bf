"""What kernels of threads fill: by branches that all threads take, and by reductions over threads."""

from __future__ import annotations

import pytest
from tvm.script import from_source

import symalloc

MODULE = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def fill(a: T.handle, b: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n, 64))
        y = T.match_buffer(b, (n,))
        {body}

    @R.function
    def main(x: R.Tensor(("n", 64), "float32")):
        n = T.int64()
        cls = Module
        y = R.call_tir(cls.fill, (x,), out_ty=R.Tensor((n,), "float32"))
        return y
"""
STORE = 'for i in T.thread_binding(n, thread="blockIdx.x"):\n{gap}    y[i] = x[i, 0]'
HALVES = """for i in T.thread_binding((n + 1) // 2, thread="blockIdx.x"):
{gap}    for j in range(2):
{gap}        if i * 2 + j < {end}:
{gap}            y[i * 2 + j] = x[i * 2 + j, 0]"""
REDUCED = """for i in T.thread_binding(n, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.sblock("sum"):
                    v, w = T.axis.remap("SR", [i, t])
                    {init}
                    y[v] = y[v] + x[v, w]"""


def _branches(few: str, many: str | None) -> str:
    gap = " " * 12
    other = "" if many is None else f"\n        else:\n{gap}{many.format(gap=gap, end='n')}"
    return f"if T.tvm_thread_invariant(n <= 2):\n{gap}{few.format(gap=gap, end='n')}{other}"


def _rules(body: str) -> list[str]:
    report = symalloc.lint(from_source(MODULE.format(body=body)), stage="as-is")
    return [f"{d.rule} {d.severity}" for d in report]


@pytest.mark.parametrize("few", [STORE, HALVES])
def test_branches_that_all_threads_take_fill_what_they_fill_together(few: str) -> None:
    assert _rules(_branches(few, HALVES)) == []
    assert _rules(_branches(few, None)) == ["SYM208 error"]
    assert _rules(HALVES.format(gap=" " * 8, end="n - 1")) == ["SYM208 error"]


def test_a_reduction_over_threads_goes_through_its_steps_in_order() -> None:
    set_first = "with T.init():\n                        y[v] = T.float32(0)"
    assert _rules(REDUCED.format(init=set_first)) == []
    assert _rules(REDUCED.format(init="")) == ["SYM905 note"]  # no reduction: threads side by side

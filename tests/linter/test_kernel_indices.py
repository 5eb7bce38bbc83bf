"""Indices of kernels that leave their dimension, but not the buffer."""

from __future__ import annotations

import pytest
from tvm.script import from_source

import symalloc

MODULE = """@I.ir_module
class Module:
    @T.prim_func
    def kernel(out: T.handle):
        n = T.int64()
        a = T.match_buffer(out, (n, {columns}), "float32")
        for i in range(n):
            a[{index}] = T.float32(0)

    @R.function(pure=False)
    def main(x: R.Tensor(("m", {columns}), "float32")) -> R.Tensor(("m", {columns}), "float32"):
        Module.kernel(x)
        return x
"""


def lint(columns: int, index: str) -> list[tuple[str, str]]:
    report = symalloc.lint(from_source(MODULE.format(columns=columns, index=index)))
    return [(d.rule, str(d.severity)) for d in report]


def test_another_element_of_the_same_buffer_is_a_warning() -> None:
    assert lint(1, "0, i") == [("SYM306", "warning")]


def test_what_leaves_the_buffer_in_the_last_row_is_an_error() -> None:
    assert lint(4, "i, 4") == [("SYM306", "error")]


def test_what_stays_is_fine() -> None:
    assert lint(4, "i, 3") == []


FAR_IN_A_LOOP = """@I.ir_module
class Module:
    @T.prim_func
    def kernel(first: T.handle, out: T.handle):
        m = T.int64()
        n = T.int64()
        a = T.match_buffer(first, (m,), "float32")
        b = T.match_buffer(out, (n,), "float32")
        for i, j in T.grid({passes}, 3):
            b[j] = a[0]

    @R.function(pure=False)
    def main(
        x: R.Tensor(("m",), "float32"), y: R.Tensor(("n",), "float32")
    ) -> R.Tensor(("n",), "float32"):
        Module.kernel(x, y)
        return y
"""


@pytest.mark.parametrize(
    ("passes", "point"), [("m", {"n": 1}), ("m // 4", {"m": 4, "n": 1}), ("m - 1", {"m": 2, "n": 1})]
)
def test_the_counterexample_names_sizes_at_which_the_loop_is_run(passes: str, point: dict[str, int]) -> None:
    report = symalloc.lint(from_source(FAR_IN_A_LOOP.format(passes=passes)))
    (found,) = [d for d in report if d.severity == "error"]
    assert (found.rule, found.counterexample) == ("SYM306", point)

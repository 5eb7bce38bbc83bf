"""Indices of kernels that leave their dimension, but not the buffer."""

from __future__ import annotations

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

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


TWO_BUFFERS = """@I.ir_module
class Module:
    @T.prim_func
    def kernel(first: T.handle, out: T.handle):
        m = T.int64()
        n = T.int64()
        a = T.match_buffer(first, (m,), "float32")
        b = T.match_buffer(out, (n,), "float32")
        {loop}
            {body}

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
    loop = f"for i, j in T.grid({passes}, 3):"
    report = symalloc.lint(from_source(TWO_BUFFERS.format(loop=loop, body="b[j] = a[0]")))
    (found,) = [d for d in report if d.severity == "error"]
    assert (found.rule, found.counterexample) == ("SYM306", point)


FAR = "b[n + i] = T.float32(0)"


@pytest.mark.parametrize(
    ("loop", "body", "verdict"),
    [
        ("for i in range(n):", FAR, "always-invalid"),
        ("for i in range(m):", FAR, "always-invalid"),
        ("for i in range(n):", "b[i + 1] = T.float32(0)", "always-invalid"),
        ("for i in range(m // 4):", FAR, "runtime-check"),
        ("for i in range(m):", f"if i > 4: {FAR}", "runtime-check"),
        ("for i in range(n):", f"if m > 4: {FAR}", "runtime-check"),
        ("for i in range(n):", "for j in range(i): b[n + j] = T.float32(0)", "runtime-check"),
    ],
)
def test_every_shape_is_at_fault_where_each_has_a_pass_that_fails(loop: str, body: str, verdict: str) -> None:
    (found,) = symalloc.lint(from_source(TWO_BUFFERS.format(loop=loop, body=body)))
    assert (found.rule, str(found.verdict), found.severity) == ("SYM306", verdict, "error")

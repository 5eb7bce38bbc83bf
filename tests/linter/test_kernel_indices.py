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


@pytest.mark.parametrize(
    ("changes", "columns", "index", "found"),
    [
        ({}, 1, "0, i", "SYM306 warning m <= 1"),  # another element of the same buffer
        ({}, 4, "i, 4", "SYM306 error None"),  # it leaves the buffer in the last row
        # not -1: a store behind such a test was taken for one that is never made
        (
            {},
            4,
            'i, T.if_then_else(T.Cast("uint32", i) - T.uint32(1) >= T.uint32(9), 4, 0)',
            "SYM905 note None",
        ),
        # up to m = 3 nothing is stored: `m >= 9` left these shapes out, and a guard would refuse them
        ({"for i in range(n):": "if n > 3:"}, 1, "8, 0", "SYM306 error m <= 3 or m >= 9"),
        # TVM keeps the low bits of an extent, and does not ask whether these are all
        ({"n = T.int64()": "n = T.int8()"}, 1, "i, 0", "SYM303 warning m <= 127"),
    ],
)
def test_indices_that_leave_their_dimension(
    changes: dict[str, str], columns: int, index: str, found: str
) -> None:
    text = MODULE
    for old, new in changes.items():
        text = text.replace(old, new)
    report = symalloc.lint(from_source(text.format(columns=columns, index=index)))
    assert [f"{d.rule} {d.severity} {d.precondition}" for d in report] == [found]


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


LONE = """@I.ir_module
class Module:
    @T.prim_func
    def kernel(out: T.handle, s: T.int64):
        n = T.int64()
        a = T.match_buffer(out, (n,), "float32")
        for i in range({count}):
            a[i + {first}] = T.float32(0)
"""


def lint_lone(count: str, first: str) -> list[tuple[str, str, str]]:
    report = symalloc.lint(from_source(LONE.format(count=count, first=first)))
    return [(d.rule, d.function, str(d.severity)) for d in report]


def test_what_is_right_for_some_shapes_or_scalars_may_be_meant_for_these() -> None:
    assert lint_lone("4", "0") == []
    assert lint_lone("n", "s") == []


def test_kernels_are_looked_at_once_whether_called_or_not() -> None:
    """A kernel that nothing calls gets a program of its own, of which the others are no part."""
    called = LONE.format(count="n", first="s")
    other = LONE.format(count="n", first="1").partition("\n")[2].partition("\n")[2].replace("kernel", "lone")
    main = """
    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32"), s: R.Prim("int64")) -> R.Tuple():
        Module.kernel(x, s)
        return R.tuple()
"""
    report = symalloc.lint(from_source(called + "\n" + other + main), select=["SYM3"])
    found = sorted(d.function for d in report if d.rule == "SYM306")
    assert found == ["lone", "main"]


THREADS = """
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
    report = symalloc.lint(from_source(THREADS.format(body=body)), stage="as-is")
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

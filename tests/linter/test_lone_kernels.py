"""Kernels that no function of the module calls."""

from __future__ import annotations

from tvm.script import from_source

import symalloc

MODULE = """@I.ir_module
class Module:
    @T.prim_func
    def kernel(out: T.handle, s: T.int64):
        n = T.int64()
        a = T.match_buffer(out, (n,), "float32")
        for i in range({count}):
            a[i + {first}] = T.float32(0)
"""


def lint(count: str, first: str) -> list[tuple[str, str, str]]:
    report = symalloc.lint(from_source(MODULE.format(count=count, first=first)))
    return [(d.rule, d.function, str(d.severity)) for d in report]


def test_what_is_outside_for_every_shape_is_said() -> None:
    assert lint("n", "1") == [("SYM306", "kernel", "error")]


def test_what_is_right_for_some_shapes_or_scalars_may_be_meant_for_these() -> None:
    assert lint("4", "0") == []
    assert lint("n", "s") == []


def test_what_is_inside_is_fine() -> None:
    assert lint("n", "0") == []


def test_kernels_are_looked_at_once_whether_called_or_not() -> None:
    """A kernel that nothing calls gets a program of its own, of which the others are no part."""
    called = MODULE.format(count="n", first="s")
    other = (
        MODULE.format(count="n", first="1").partition("\n")[2].partition("\n")[2].replace("kernel", "lone")
    )
    main = """
    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32"), s: R.Prim("int64")) -> R.Tuple():
        Module.kernel(x, s)
        return R.tuple()
"""
    report = symalloc.lint(from_source(called + "\n" + other + main), select=["SYM3"])
    found = sorted(d.function for d in report if d.rule == "SYM306")
    assert found == ["lone", "main"]

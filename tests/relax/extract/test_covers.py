"""Which buffers a PrimFunc is seen to write in full."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from symalloc.program.ir import KernelBuffer, Program

Read = Callable[[str], Program]

HEAD = """
@T.prim_func{options}
def k(A: T.handle, B: T.handle, c: T.Buffer((16,), "float32"), s: T.int64):
    m = T.int64()
    n = T.int64()
    a = T.match_buffer(A, (m, n * 2), "float32")
    b = T.match_buffer(B, (m, 1), "float32")
{body}
"""


def full(program: Read, body: str, options: str = "") -> set[str]:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    kernel = program(HEAD.format(options=options, body=lines)).kernels["k"]
    return {p.name for p in kernel.parameters if isinstance(p, KernelBuffer) and p.must_def}


STORE = "a[i, j] = T.float32(0)"
NEST = "for i in range(m):\n    for j in range(n * 2):\n        "


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (NEST + STORE, {"a"}),
        ("for j in range(n * 2):\n    for i in range(m):\n        " + STORE, {"a"}),
        ("for j in T.parallel(n * 2):\n    for i in T.unroll(m):\n        " + STORE, {"a"}),
        ("for i in range(m):\n    b[i, 0] = T.float32(0)", {"b"}),
        ("for i in range(16):\n    c[i] = T.float32(0)\n    c[i] = T.float32(1)", {"c"}),
        (NEST + STORE + "\nfor i in range(16):\n    c[i] = T.float32(0)", {"a", "c"}),
        ("for i, r in T.grid(16, 4):\n    c[i] = T.float32(0)", {"c"}),
        # not all of it
        ("c[0] = T.float32(0)", set()),
        ("for i in range(15):\n    c[i] = T.float32(0)", set()),
        ("for i in range(1, 16):\n    c[i] = T.float32(0)", set()),
        ("for i in range(15):\n    c[i + 1] = T.float32(0)", set()),
        ("for i in range(16):\n    c[i // 2] = T.float32(0)", set()),
        ("for i in range(m):\n    for j in range(n):\n        " + STORE, set()),
        ("for i in range(n * 2):\n    for j in range(n * 2):\n        " + STORE, set()),
        ("for i in range(m):\n    a[i, i] = T.float32(0)", set()),
        # not always
        ("for i in range(16):\n    if i < s:\n        c[i] = T.float32(0)", set()),
        ("for i, r in T.grid(16, m):\n    c[i] = T.float32(0)", set()),
        ("for i in range(16):\n    while s > 0:\n        c[i] = T.float32(0)", set()),
        (
            "for i in range(16):\n    c[i] = T.float32(0)\n    if s > 0:\n        T.evaluate(T.break_loop())",
            set(),
        ),
        # read as well
        ("for i in range(16):\n    c[i] = c[i] + T.float32(1)", set()),
        ("for i in range(16):\n    c[i] = T.float32(0)\nT.evaluate(c[0])", set()),
        ("for i in range(16):\n    c[i] = T.float32(0)\nT.evaluate(T.address_of(c[0]))", set()),
    ],
)
def test_plain_loops(program: Read, body: str, expected: set[str]) -> None:
    assert full(program, body) == expected


BLOCK = """
for i, j in T.grid(m, n * 2):
    with T.sblock("x"):
        {axes}
        {where}
        T.reads()
        T.writes(a[v, w])
        a[v, w] = T.float32(0)
"""


@pytest.mark.parametrize(
    ("axes", "where", "expected"),
    [
        ('v, w = T.axis.remap("SS", [i, j])', "", {"a"}),
        ('w, v = T.axis.remap("SS", [j, i])', "", {"a"}),
        ('v, w = T.axis.remap("SS", [i, j])', "T.where(i < 3)", set()),
        ("v = T.axis.spatial(m, i)\n        w = T.axis.spatial(n * 2, j // 2)", "", set()),
    ],
)
def test_blocks(program: Read, axes: str, where: str, expected: set[str]) -> None:
    assert full(program, BLOCK.format(axes=axes, where=where), "(s_tir=True)") == expected


def test_a_sum_leaves_empty_rows_as_they_were(program: Read) -> None:
    body = """
for i, r in T.grid(16, m):
    with T.sblock("x"):
        v, w = T.axis.remap("SR", [i, r])
        with T.init():
            c[v] = T.float32(0)
        c[v] = c[v] + b[w, 0]
"""
    assert full(program, body, "(s_tir=True)") == set()


def test_strides_leave_gaps(program: Read) -> None:
    kernel = program(
        """
        @T.prim_func
        def k(A: T.handle):
            a = T.match_buffer(A, (16,), "float32", strides=(2,))
            for i in range(16):
                a[i] = T.float32(0)
        """
    ).kernels["k"]
    (a,) = kernel.parameters
    assert isinstance(a, KernelBuffer)
    assert (a.writes, a.must_def) == (True, False)

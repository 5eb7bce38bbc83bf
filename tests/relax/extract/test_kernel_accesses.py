"""The loads and stores of a PrimFunc's parameters: indices, guards, loops and order."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent

import pytest

from symalloc.program.ir import Kernel, KernelAccess, Program

Read = Callable[[str], Program]


def kernel(program: Read, body: str, *, s_tir: bool = False) -> Kernel:
    """A kernel with buffers a (n, 8), b (64,) and c (n,), a pointer p and a scalar s."""
    decorator = "@T.prim_func(s_tir=True)" if s_tir else "@T.prim_func"
    return program(
        f"""
        {decorator}
        def k(x: T.handle, b: T.Buffer((64,), "float32"), y: T.handle, p: T.handle("float32"), s: T.int64):
            n = T.int64()
            a = T.match_buffer(x, (n, 8), "float32")
            c = T.match_buffer(y, (n,), "int64")
{indent(body.strip(), " " * 12)}
        """
    ).kernels["k"]


def text(access: KernelAccess) -> str:
    """An access on one line: `load 0[i, 3] where i < n`; a `?` behind it where it is not exact."""
    indices = ", ".join("?" if index is None else str(index) for index in access.indices)
    ranges = {f"{loop.symbol} >= 0" for loop in access.loops}
    held = [str(condition) for condition in access.domain if str(condition) not in ranges]
    where = f" where {', '.join(held)}" if held else ""
    return f"{access.kind} {access.parameter}[{indices}]{where}{'' if access.exact else ' ?'}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for i in range(n):\n    b[i] = a[i, 3]", ["load 0[i, 3] where i < n", "store 1[i] where i < n"]),
        (
            "for i in T.serial(2, 10, step=3):\n    b[i] = a[i, 0]",
            ["load 0[3*i + 2, 0] where i <= 2", "store 1[3*i + 2] where i <= 2"],
        ),
        (
            "for i in range(n):\n  if i < 4 and s > 2:\n    b[i] = a[0, 0]\n  else:\n    b[9] = a[1, 1]",
            [
                "load 0[0, 0] where i < n, i <= 3, s >= 3",
                "store 1[i] where i < n, i <= 3, s >= 3",
                "load 0[1, 1] where i < n, i >= 4 or s <= 2",
                "store 1[9] where i < n, i >= 4 or s <= 2",
            ],
        ),
        (
            "for i in range(n):\n    if c[i] < 4 and i > 0:\n        b[i] = 0.0",
            ["load 2[i] where i < n", "store 1[i] where i < n, i >= 1 ?"],
        ),
        (
            "for i in range(n):\n    b[i] = T.if_then_else(i >= 1, a[i - 1, 0], b[5])",
            [
                "load 0[i - 1, 0] where i < n, i >= 1",
                "load 1[5] where i < n, i <= 0",
                "store 1[i] where i < n",
            ],
        ),
        (
            "for i in range(n):\n    b[i] = T.Select(i >= 1, a[i - 1, 0], T.float32(0))",
            ["load 0[i - 1, 0] where i < n, i >= 1", "store 1[i] where i < n"],
        ),
        (
            "for i in range(n):\n    b[c[i]] = a[T.min(T.max(c[i], 0), n - 1), 7]",
            [
                "load 2[i] where i < n",
                "load 0[?, 7] where i < n",
                "load 2[i] where i < n",
                "store 1[?] where i < n",
            ],
        ),
        ("for i in range(c[0]):\n    b[i] = 0.0", ["load 2[0]", "store 1[i] ?"]),
        (
            "b[T.Ramp(0, 2, 4)] = a[2, T.Ramp(0, 1, 4)]",
            ["load 0[2, lane] where lane <= 3", "store 1[2*lane_1] where lane_1 <= 3"],
        ),
        (
            "for i in range(n):\n    if i >= 64:\n        T.evaluate(T.break_loop())\n    b[i] = 0.0",
            ["store 1[i] where i < n, i <= 63"],
        ),
        ("b[0] = 1.0\nif s > 0:\n    return 0\nb[1] = 1.0", ["store 1[0]", "store 1[1] where s <= 0"]),
        ('assert n <= 64, "small"\nfor i in range(n):\n    b[i] = 0.0', ["store 1[i] where n <= 64, i < n"]),
        (
            'd = T.decl_buffer((8, 8), "float32", data=b.data)\nfor i, j in T.grid(8, 8):\n    d[i, j] = 0.0',
            ["store 1[8*i + j] where i <= 7, j <= 7"],
        ),
        (
            'd = T.decl_buffer((n * 8,), "float32", data=a.data)\nfor i in range(n * 8):\n    d[i] = 0.0',
            ["store 0[i // 8, i % 8] where i < 8*n"],
        ),
        ('d = T.decl_buffer((64,), "float32", data=p)\nd[5] = b[0]', ["load 1[0]", "store 3[?]"]),
        ('T.evaluate(T.call_extern("int32", "f", T.address_of(b[3])))', ["load 1[?] ?", "store 1[?] ?"]),
        ('e = T.alloc_buffer((64,), "float32")\ne[70] = b[1]\nb[2] = e[80]', ["load 1[1]", "store 1[2]"]),
        (
            'i = T.alloc_buffer((1,), "int64")\ni[0] = T.int64(0)\nwhile i[0] < n:\n    b[i[0]] = a[i[0], 1]',
            ["load 0[0, 1] where n >= 1 ?", "store 1[0] where n >= 1 ?"],
        ),
    ],
)
def test_statements(program: Read, body: str, expected: list[str]) -> None:
    assert list(map(text, kernel(program, body).accesses)) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "for i in range(n):\n    b[i] = 1.0\n    if i >= 64:\n        continue\n    b[i] = 0.0",
            ["store 1[i] where i < n", "store 1[i] where i < n, i <= 63"],
        ),
        (
            "for i in range(n):\n    b[i] = 1.0\n    if i >= 64:\n        break\n    b[i] = 0.0\nb[5] = 2.0",
            ["store 1[i] where i < n, i <= 64", "store 1[i] where i < n, i <= 63", "store 1[5]"],
        ),
        (
            "for i in range(n):\n    if i == 64:\n        break\n    b[i] = 0.0",
            ["store 1[i] where i < n, i <= 63"],
        ),
        (
            "for i in range(n):\n    if i < 8:\n        break\n    b[i] = 0.0",
            ["store 1[i] where i < n, i >= 8, i <= 0"],
        ),
        (
            "for i in range(n):\n    if i >= 8:\n        if i >= 64:\n            continue\n    b[i] = 0.0",
            ["store 1[i] where i < n, (i >= 8 and i <= 63) or i <= 7"],
        ),
        (
            "for i in range(n):\n    if i >= 8:\n        return 0\n    b[i] = 0.0",
            ["store 1[i] where i < n, i <= 7 ?"],
        ),
        (
            "for i in range(n):\n    if c[i] > 0:\n        continue\n    b[i] = 0.0",
            ["load 2[i] where i < n", "store 1[i] where i < n ?"],
        ),
        (
            "for i in range(n):\n    for j in range(8):\n        if j > i:\n            break\n"
            "        b[j] = a[i, j]\n    c[i] = T.int64(0)",
            [
                "load 0[i, j] where i < n, j <= 7, j <= i",
                "store 1[j] where i < n, j <= 7, j <= i",
                "store 2[i] where i < n",
            ],
        ),
    ],
)
def test_exits_of_which_all_is_known(program: Read, body: str, expected: list[str]) -> None:
    """Behind `continue`, and behind a `break` that no later pass would have missed, nothing is in doubt."""
    assert list(map(text, kernel(program, body).accesses)) == expected


def test_a_reduction_is_initialised_at_its_first_step(program: Read) -> None:
    body = """
for i, j in T.grid(n, T.int64(8)):
    with T.sblock("sum"):
        vi, vj = T.axis.remap("SR", [i, j])
        with T.init():
            b[vi] = T.float32(0)
        b[vi] = b[vi] + a[vi, vj]
"""
    assert list(map(text, kernel(program, body, s_tir=True).accesses)) == [
        "store 1[i] where i < n, j <= 7, j == 0",
        "load 1[i] where i < n, j <= 7",
        "load 0[i, j] where i < n, j <= 7",
        "store 1[i] where i < n, j <= 7",
    ]


def test_a_block_has_a_predicate_and_matches_regions(program: Read) -> None:
    body = """
for block in T.thread_binding(2, thread="blockIdx.x"):
    for thread in T.thread_binding(32, thread="threadIdx.x"):
        with T.sblock("x"):
            v = T.axis.spatial(n, T.Cast("int64", block * 32 + thread))
            T.where(T.Cast("int64", block * 32 + thread) < n)
            T.reads(a[v, 0:8])
            T.writes(b[v])
            row = T.match_buffer(a[v, 2:8], (6,), "float32", offset_factor=1)
            b[v] = row[3]
"""
    found = kernel(program, body, s_tir=True).accesses
    where = "where block <= 1, thread <= 31, 32*block + thread < n"
    assert list(map(text, found)) == [
        f"load 0[32*block + thread, 5] {where}",
        f"store 1[32*block + thread] {where}",
    ]
    assert [[loop.parallel for loop in access.loops] for access in found] == [[True, True], [True, True]]


def test_loops_that_accesses_share(program: Read) -> None:
    body = """
for i in range(n):
    for j in range(8):
        b[i] = a[i, j]
    for j in range(8):
        b[j] = 0.0
"""
    load, store, other = kernel(program, body).accesses
    assert load.loops == store.loops
    assert [loop.symbol for loop in store.loops] == ["i", "j"]
    assert [loop.symbol for loop in other.loops] == ["i", "j_1"]


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("k: T.int64 = n * 2\nb[k + 1] = 0.0", "2*n + 1"),
        ("k: T.int64 = n\nk = k + 1\nb[k] = 0.0", "n + 1"),
        ("for i in range(n):\n    k: T.int64 = i*8\n    for j in range(8):\n        b[k+j] = 0.0", "8*i + j"),
        ("k = T.alloc_buffer((), 'int64')\nk[()] = n\nb[k[()]] = 0.0", "n"),
        ("k: T.int64 = n\nu: T.let = k + 1\nk = 3\nb[u] = 0.0", "n + 1"),
        ("k: T.int64 = 0\nif c[0] > 0:\n    k = 1\n    b[k] = 0.0", "1"),
        ("k: T.int64 = 0\nif c[0] > 0:\n    k = 1\nelse:\n    b[k] = 0.0", "0"),
        # what another pass has stored, or none
        ("k: T.int64 = 0\nfor i in range(n):\n    b[k] = 0.0\n    k = k + 1", "?"),
        ("k: T.int64 = 0\nfor i in range(n):\n    k = i\nb[k] = 0.0", "?"),
        ("k: T.int64 = 0\nwhile k < n:\n    b[k] = 0.0\n    k = k + 1", "?"),
        ("k: T.int64 = 0\nfor i in T.parallel(n):\n    k = i\n    b[k] = 0.0", "?"),
        ("k: T.int64 = 0\nif c[0] > 0:\n    k = 1\nb[k] = 0.0", "?"),
        ("k: T.int64 = 0\nif c[0] > 0:\n    T.evaluate(0)\nelse:\n    k = 1\nb[k] = 0.0", "?"),
        # what somebody else may store
        ("k: T.int64 = 0\nT.evaluate(T.call_extern('int32', 'f', T.address_of(k)))\nb[k] = 0.0", "?"),
        ("k: T.int64 = 0\nT.evaluate(T.call_extern('int32', 'f', k))\nb[k] = 0.0", "?"),
        ("k = T.alloc_buffer((1,), 'int64')\nl = T.decl_buffer((1,), 'int64', data=k.data)\n"
         "k[0] = 1\nl[0] = 2\nb[k[0]] = 0.0", "?"),
        # what is evaluated only where it is used
        ("k: T.int64 = 4\nd = T.decl_buffer((8, k), 'float32', data=b.data)\nk = 2\nd[1, 0] = 0.0", "?"),
        # what is no number of its own
        ("k = T.alloc_buffer((2,), 'int64')\nk[0] = 1\nb[k[0]] = 0.0", "?"),
        ("k: T.int8 = T.int8(127)\nk = k + T.int8(1)\nb[T.cast(k, 'int64')] = 0.0", "?"),
        ("k: T.int64 = c[0]\nb[k] = 0.0", "?"),
    ],
)  # fmt: skip
def test_numbers_in_buffers_of_one_element(program: Read, body: str, stored: str) -> None:
    (store,) = (a for a in kernel(program, body).accesses if a.kind == "store" and a.parameter == 1)
    assert ["?" if index is None else str(index) for index in store.indices] == [stored]


@pytest.mark.parametrize(
    "inside",
    ["v = T.axis.spatial(64, k[0])\nk[0] = 2", "v = T.axis.reduce(64, k[0])\nwith T.init():\n    k[0] = 2"],
)
def test_the_axes_of_a_block_are_put_where_they_are_used(program: Read, inside: str) -> None:
    body = f"""
k = T.sblock_alloc_buffer((1,), "int64", scope="local")
k[0] = 1
with T.sblock("x"):
{indent(inside, "    ")}
    b[v] = 0.0
"""
    (store,) = (a for a in kernel(program, body, s_tir=True).accesses if a.parameter == 1)
    assert store.indices == (None,)


def test_a_number_that_grows_with_each_store_is_given_up(program: Read) -> None:
    body = "k: T.int64 = n\n" + "k = k * k + s\n" * 40 + "b[k] = 0.0"
    (store,) = (a for a in kernel(program, body).accesses if a.kind == "store")
    assert store.indices == (None,)

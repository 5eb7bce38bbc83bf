"""Kernels that leave out elements of their own output, in no box."""

from __future__ import annotations

from textwrap import indent

import numpy as np

from tests.hostile.machine import Array, Machine, depends_on_storages, floats
from tests.hostile.program import HostileProgram

_MODULE = """@I.ir_module
class Module:
    @T.prim_func
    def work(first: T.handle, places: T.handle, out: T.handle):
        n = T.int64()
        m = T.int64()
        a = T.match_buffer(first, (n, m), "float32")
        at = T.match_buffer(places, (n,), "int64")
        b = T.match_buffer(out, (n, m), "float32")
{body}

    @R.function
    def main(
        x: R.Tensor(("n", "m"), "float32"), p: R.Tensor(("n",), "int64")
    ) -> R.Tensor(("n", "m"), "float32"):
        n = T.int64()
        m = T.int64()
        y = R.call_tir(Module.work, (x, p), out_ty=R.Tensor((n, m), "float32"))
        z = R.add(y, x)
        return z
"""
_X: Array = floats(6, 4)
_PLACES: Array = np.array([1, 0, 3, 3, 5, 4], dtype="int64")


def _module(body: str) -> str:
    return _MODULE.format(body=indent(body.strip(), " " * 8))


def _four_columns(body: str) -> str:
    """The kernel on tensors of four columns."""
    return _module(body).replace('"m"', "4").replace("(n, m)", "(n, 4)").replace("m = T.int64()", "pass")


def _old_bytes(bad: Machine, twin: Machine) -> bool:
    return depends_on_storages(bad, _X, _PLACES) and not depends_on_storages(twin, _X, _PLACES)


def _left_out(what: str, bad: str, twin: str, **more: object) -> HostileProgram:
    return HostileProgram(
        what=what,
        module=_module(bad),
        twin=_module(twin),
        rule="SYM208",
        on_line="z = R.add(y, x)",
        shows=_old_bytes,
        **more,  # type: ignore[arg-type]
    )


_COPY = "for i, j in T.grid(n, m):\n    b[i, j] = a[i, j]\n"
_FUSED = "for t in range({}):\n    b[t // m, t % m] = a[t // m, t % m]\n"
_LEFT = """
for i in range(n):
    if i == {}:
        break
    for j in range(m):
        b[i, j] = a[i, j]
"""
_SCATTER = "for i, j in T.grid(n, m):\n    b[at[i], j] = a[i, j]\n"
_BY_BITS = "for t in range(n * 4):\n    b[t >> 2, t & {}] = a[t >> 2, t & {}]\n"
_ALL_BUT_ONE = "for i, j in T.grid(n, m):\n    if i + j > 0:\n        b[i, j] = a[i, j]\n"
_FIRST = "if n > {}:\n    b[0, 0] = a[0, 0]\n"
_LAST_ROW = "for i in T.serial(1, n):\n    b[0, 0] = b[i, 0]\n"

_FIVE = """@I.ir_module
class Module:
    @T.prim_func
    def work(a: T.handle, b: T.handle, c: T.handle, d: T.handle, e: T.handle, out: T.handle):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        j = T.int64()
        h = T.int64()
        p = T.match_buffer(a, (n,), "float32")
        q = T.match_buffer(b, (m,), "float32")
        r = T.match_buffer(c, (k,), "float32")
        s = T.match_buffer(d, (j,), "float32")
        t = T.match_buffer(e, (h,), "float32")
        o = T.match_buffer(out, (n + m + k + j + h,), "float32")
        for i in range((n + 1) // 2):
            o[2 * i] = p[2 * i]
        for i in range({odd}):
            o[2 * i + 1] = p[2 * i + 1]
        for i in range(m):
            o[n + i] = q[i]
        for i in range(k):
            o[n + m + i] = r[i]
        for i in range(j):
            o[n + m + k + i] = s[i]
        for i in range(h):
            o[n + m + k + j + i] = t[i]

    @R.function
    def main(
        a: R.Tensor(("n",), "float32"), b: R.Tensor(("m",), "float32"), c: R.Tensor(("k",), "float32"),
        d: R.Tensor(("j",), "float32"), e: R.Tensor(("h",), "float32"),
    ) -> R.Tensor(("n + m + k + j + h",), "float32"):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        j = T.int64()
        h = T.int64()
        y = R.call_tir(Module.work, (a, b, c, d, e), out_ty=R.Tensor((n + m + k + j + h,), "float32"))
        z = R.add(y, y)
        return z
"""
_PARTS = tuple(floats(extent) for extent in (6, 2, 3, 1, 2))

PROGRAMS: tuple[HostileProgram, ...] = (
    HostileProgram(
        what="five inputs are put together, of the first only the even numbers",
        module=_FIVE.format(odd="0"),
        twin=_FIVE.format(odd="n // 2"),
        rule="SYM208",
        on_line="z = R.add(y, y)",
        shows=lambda bad, twin: depends_on_storages(bad, *_PARTS) and not depends_on_storages(twin, *_PARTS),
    ),
    _left_out(
        "a loop over rows and columns at once leaves out the last element",
        _FUSED.format("n * m - 1"),
        _FUSED.format("n * m"),
        verdict="always-invalid",
    ),
    _left_out(
        "the loop over rows is left at one in the middle",
        _LEFT.format("2"),
        _LEFT.format("n"),
        counterexample={"m": 1, "n": 3},
    ),
    _left_out(
        "rows go to places that are data, and some rows get none",
        _SCATTER,
        _COPY + _SCATTER,
        severity="warning",
    ),
    _left_out(
        "the first element is stored outside of all loops, and not for few rows",
        _ALL_BUT_ONE + _FIRST.format(6),
        _ALL_BUT_ONE + _FIRST.format(0),
        counterexample={"m": 1, "n": 1},
    ),
    HostileProgram(
        what="the mask of a column is too narrow: it names the first two of four only",
        module=_four_columns(_BY_BITS.format(1, 3)),
        twin=_four_columns(_BY_BITS.format(3, 3)),
        rule="SYM208",
        verdict="always-invalid",
        on_line="z = R.add(y, x)",
        shows=_old_bytes,
    ),
    HostileProgram(
        what="the rows behind the first are read before they are stored, where there are any",
        module=_module(_LAST_ROW + _ALL_BUT_ONE),
        twin=_module(_COPY + _LAST_ROW),
        rule="SYM208",
        verdict="runtime-check",
        on_line="y = R.call_tir",
        counterexample={"m": 1, "n": 2},
        shows=_old_bytes,
    ),
)

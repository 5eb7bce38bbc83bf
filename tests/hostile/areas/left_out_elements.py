"""Kernels that leave out elements of their own output, in no box."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hostile.machine import Array, floats, old_bytes
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import function, kernel, module

_X: Array = floats(6, 4)
_PLACES: Array = np.array([1, 0, 3, 3, 5, 4], dtype="int64")


def _left_out(what: str, *lines: str, columns: str = "m", **more: Any) -> HostileProgram:
    """A kernel fills `b` of n rows; `a` is as large, `at` holds a place for each row."""
    named = f'"{columns}"' if columns == "m" else columns
    kind = f'R.Tensor(("n", {named}), "float32")'
    text = module(
        kernel("work", *lines, a=f"n, {columns}", at="n", b=f"n, {columns}").replace(
            '(at_, (n,), "float32")', '(at_, (n,), "int64")'
        ),
        function(
            f'x: {kind}, p: R.Tensor(("n",), "int64")',
            f'y = R.call_tir(Module.work, (x, p), out_ty=R.Tensor((n, {columns}), "float32"))',
            *("z = R.add(y, x)", "return z"),
            result=kind,
            how="",
        ),
    )
    found = {"on_line": "z = R.add(y, x)", "shows": old_bytes(_X, _PLACES), **more}
    return hostile(what, "SYM208", text, **found)


_GRID = "for i, j in T.grid(n, m):"
_COPY = f"{_GRID}\n    b[i, j] = a[i, j]\n"
_ALL_BUT_ONE = f"{_GRID}\n    if i + j > 0:\n        b[i, j] = a[i, j]"
_LAST_ROW = "for i in T.serial(1, n):\n    b[0, 0] = b[i, 0]\n"

_EXTENTS, _SUM = dict(zip("pqrst", "nmkjh", strict=True)), "n + m + k + j + h"
_BEHIND = {"q": "n", "r": "n + m", "s": "n + m + k", "t": "n + m + k + j"}
_FIVE = module(
    kernel(
        "work",
        *("for i in range((n + 1) // 2):", "    o[2 * i] = p[2 * i]"),
        *("for i in range(<<0|n // 2>>):", "    o[2 * i + 1] = p[2 * i + 1]"),
        *(f"for i in range({_EXTENTS[b]}):\n    o[{first} + i] = {b}[i]" for b, first in _BEHIND.items()),
        **_EXTENTS,
        o=_SUM,
    ),
    function(
        ", ".join(f'{part}: R.Tensor(("{n}",), "float32")' for part, n in _EXTENTS.items()),
        f'y = R.call_tir(Module.work, (p, q, r, s, t), out_ty=R.Tensor(({_SUM},), "float32"))',
        *("z = R.add(y, y)", "return z"),
        result=f'R.Tensor(("{_SUM}",), "float32")',
        how="",
    ),
)

PROGRAMS: tuple[HostileProgram, ...] = (
    hostile(
        "five inputs are put together, of the first only the even numbers",
        "SYM208",
        _FIVE,
        on_line="z = R.add(y, y)",
        shows=old_bytes(*(floats(extent) for extent in (6, 2, 3, 1, 2))),
    ),
    _left_out(
        "a loop over rows and columns at once leaves out the last element",
        *("for t in range(n * m<< - 1|>>):", "    b[t // m, t % m] = a[t // m, t % m]"),
        verdict="always-invalid",
    ),
    _left_out(
        "the loop over rows is left at one in the middle",
        *("for i in range(n):", "    if i == <<2|n>>:", "        break"),
        *("    for j in range(m):", "        b[i, j] = a[i, j]"),
        counterexample={"m": 1, "n": 3},
    ),
    _left_out(
        "rows go to places that are data, and some rows get none",
        *(f"<<|{_COPY}>>{_GRID}", "    b[at[i], j] = a[i, j]"),
        severity="warning",
    ),
    _left_out(
        "the first element is stored outside of all loops, and not for few rows",
        *(_ALL_BUT_ONE, "if n > <<6|0>>:", "    b[0, 0] = a[0, 0]"),
        counterexample={"m": 1, "n": 1},
    ),
    _left_out(
        "the mask of a column is too narrow: it names the first two of four only",
        *("for t in range(n * 4):", "    b[t >> 2, t & <<1|3>>] = a[t >> 2, t & 3]"),
        columns="4",
        verdict="always-invalid",
    ),
    _left_out(
        "the rows behind the first are read before they are stored, where there are any",
        f"<<{_LAST_ROW}{_ALL_BUT_ONE}|{_COPY}{_LAST_ROW}>>",
        verdict="runtime-check",
        on_line="y = R.call_tir",
        counterexample={"m": 1, "n": 2},
    ),
)

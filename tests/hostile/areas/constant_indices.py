"""Constant indices, followed into kernels: what they reach outside of a buffer is known at once."""

from __future__ import annotations

from signal import SIGSEGV
from typing import Any

import numpy as np

from tests.hostile.machine import Array, Machine
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import four_floats

_VALUES: Array = np.array([3.5, -8.25, 17.125, 41.0], "float32")
_UPDATES: Array = np.array([100.5, 200.5], "float32")
_PAIR = 'R.Tensor((2,), "float32")'


def _reads(bad: Machine, twin: Machine) -> bool:
    """What the program gives is no element of its input; of its twin it is."""
    found = [bool(np.isin(one.run(_VALUES)[0], _VALUES).all()) for one in (bad, twin)]
    return found == [False, True]


def _writes(bad: Machine, twin: Machine) -> bool:
    """An update of the program is not in its result, for it went elsewhere; those of its twin are."""
    found = [bool(np.isin(_UPDATES, one.run(_VALUES, _UPDATES)[0]).all()) for one in (bad, twin)]
    return found == [False, True]


def _read(what: str, *lines: str, **more: Any) -> HostileProgram:
    text = four_floats(*lines, "return y", result=_PAIR, how="", functions=_OWN)
    return hostile(what, **{"rule": "SYM307", "text": text, "stage": "auto", "shows": _reads, **more})


def _written(what: str, call: str) -> HostileProgram:
    text = four_floats(f"y = {call}", "return y", more=f", u: {_PAIR}", how="")
    return hostile(what, "SYM306", text, stage="auto", verdict="always-invalid", shows=_writes)


def _const(values: object) -> str:
    return f'R.const({values}, "int64")'


_TAKEN = "R.take(x, {}, axis=0, mode='fast')".format
_MADE = 'R.call_tir(Module.{}, {}, out_ty=R.Tensor((2,), "int64"))'.format
_OWN = """
    @T.prim_func
    def kept(a: T.Buffer((4,), "float32"), rows: T.Buffer((2,), "int64"), out: T.Buffer((2,), "float32")):
        own = T.alloc_buffer((2,), "int64")
        for i in range(2):
            own[i] = rows[i]
        for i in range(2):
            out[i] = a[own[i]]

    @T.prim_func
    def renewed(a: T.Buffer((4,), "float32"), rows: T.Buffer((2,), "int64"), out: T.Buffer((2,), "float32")):
        own = T.alloc_buffer((2,), "int64")
        for i in range(2):
            own[i] = rows[i]
        for i in range(2):
            out[i] = a[own[i]]
            own[1] = T.int64(2)

    @T.prim_func
    def rows(out: T.Buffer((2,), "int64")):
        for i in range(<<1|2>>):
            out[i] = T.int64(<<7|3>>)<<| * i>>

    @T.prim_func
    def halves(rows: T.Buffer((2,), "int64"), out: T.Buffer((2,), "int64")):
        for i in range(2):
            out[i] = rows[i] // T.int64(2)
"""

PROGRAMS: tuple[HostileProgram, ...] = (
    _read(
        "the index is a sum of two constants",
        f"i = R.add({_const([2, 1])}, {_const([2, 0])})",
        f"y = {_TAKEN(f'<<i|{_const([3, 1])}>>')}",
    ),
    _read(
        "negative indices are counted from the end, and one lies in front of the first",
        f"k = {_const([-5, 2])}",
        "i = R.where(R.less(k, R.const(0, 'int64')), R.add(k, R.const(4, 'int64')), k)",
        f"y = {_TAKEN('<<i|R.maximum(i, R.const(0, `int64`))>>')}".replace("`", "'"),
    ),
    _read(
        "the constant is reshaped, cast, and a part of a longer one",
        "k = R.reshape(R.const([[1], [4]], 'int32'), R.shape([2]))",
        "i = R.concat((R.strided_slice(R.astype(k, 'int64'), [0], [1], [2]), R.const([2], 'int64')), axis=0)",
        f"y = {_TAKEN('<<i|R.subtract(i, R.const(1, `int64`))>>')}".replace("`", "'"),
    ),
    _read(
        "a kernel copies a constant, of which the twin's stores another element in each pass",
        f"y = R.call_tir(Module.<<kept|renewed>>, (x, {_const([1, 7])}), out_ty={_PAIR})",
        stage="as-is",
    ),
    _read(
        "of two rows that a kernel halves only one is stored",
        f"i = {_MADE('rows', '()')}",
        f"k = {_MADE('halves', '(i,)')}",
        f"y = {_TAKEN('k')}",
        rule="SYM208",
        signal=SIGSEGV,
    ),
    _written(
        "scatter_elements counts from the end, and one index lies in front of the first",
        f"R.scatter_elements(x, {_const('[<<-5|-4>>, 1]')}, u, axis=0)",
    ),
    _written(
        "scatter_nd writes behind the last element",
        f"R.scatter_nd(x, {_const('[[0], [<<4|3>>]]')}, u)",
    ),
)

"""Constant indices, followed into kernels: what they reach outside of a buffer is known at once."""

from __future__ import annotations

from signal import SIGSEGV

import numpy as np

from tests.hostile.four_floats import PURE, body, module
from tests.hostile.machine import Array, Machine
from tests.hostile.program import HostileProgram

_VALUES: Array = np.array([3.5, -8.25, 17.125, 41.0], "float32")
_UPDATES: Array = np.array([100.5, 200.5], "float32")
_UPDATED = PURE.replace(") ->", ', u: R.Tensor((2,), "float32")) ->')
_PAIR = PURE.replace('-> R.Tensor((4,), "float32")', '-> R.Tensor((2,), "float32")')


def _reads(bad: Machine, twin: Machine) -> bool:
    """What the program gives is no element of its input; of its twin it is."""
    found = [bool(np.isin(one.run(_VALUES)[0], _VALUES).all()) for one in (bad, twin)]
    return found == [False, True]


def _writes(bad: Machine, twin: Machine) -> bool:
    """An update of the program is not in its result, for it went elsewhere; those of its twin are."""
    found = [bool(np.isin(_UPDATES, one.run(_VALUES, _UPDATES)[0]).all()) for one in (bad, twin)]
    return found == [False, True]


def _read(what: str, bad: str, twin: str, *before: str, also: str = "") -> HostileProgram:
    first, second = (module(body(_PAIR, *before, f"y = {made}", "return y")) for made in (bad, twin))
    more = frozenset({also}) if also else frozenset[str]()
    return HostileProgram(
        what=what, module=first, twin=second, rule="SYM307", stage="auto", shows=_reads, also=more
    )


def _written(what: str, bad: str, twin: str, *, verdict: str = "always-invalid") -> HostileProgram:
    first, second = (module(body(_UPDATED, f"y = {made}", "return y")) for made in (bad, twin))
    return HostileProgram(
        what=what,
        module=first,
        twin=second,
        rule="SYM306",
        stage="auto",
        verdict=verdict,
        shows=_writes,
    )


def _const(values: object) -> str:
    return f'R.const({values}, "int64")'


_TAKEN = "R.take(x, {}, axis=0, mode='fast')"
_SHIFTED = """
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
    def row(out: T.Buffer((2,), "int64")):
        for i in range(1):
            out[i] = T.int64(7)

    @T.prim_func
    def rows(out: T.Buffer((2,), "int64")):
        for i in range(2):
            out[i] = T.int64(3) * i

    @T.prim_func
    def halves(rows: T.Buffer((2,), "int64"), out: T.Buffer((2,), "int64")):
        for i in range(2):
            out[i] = rows[i] // T.int64(2)
"""


def _halved(kernel: str) -> str:
    """Two rows of `kernel` are halved, and taken."""
    call = 'R.call_tir(Module.{}, {}, out_ty=R.Tensor((2,), "int64"))'
    lines = (f"i = {call.format(kernel, '()')}", f"k = {call.format('halves', '(i,)')}")
    return module(_SHIFTED, body(_PAIR, *lines, f"y = {_TAKEN.format('k')}", "return y"))


def _by_hand(head: str, kernel: str, arguments: str, rows: object, result: str) -> str:
    call = f'R.call_tir(Module.{kernel}, ({arguments}), out_ty=R.Tensor({result}, "float32"))'
    return module(_SHIFTED, body(head, f"y = {call.format(_const(rows))}", "return y"))


PROGRAMS: tuple[HostileProgram, ...] = (
    _read(
        "the index is a sum of two constants",
        _TAKEN.format("i"),
        _TAKEN.format(_const([3, 1])),
        f"i = R.add({_const([2, 1])}, {_const([2, 0])})",
    ),
    _read(
        "negative indices are counted from the end, and one lies in front of the first",
        _TAKEN.format("i"),
        _TAKEN.format("R.maximum(i, R.const(0, 'int64'))"),
        f"k = {_const([-5, 2])}",
        "i = R.where(R.less(k, R.const(0, 'int64')), R.add(k, R.const(4, 'int64')), k)",
    ),
    _read(
        "the constant is reshaped, cast, and a part of a longer one",
        _TAKEN.format("i"),
        _TAKEN.format("R.subtract(i, R.const(1, 'int64'))"),
        "k = R.reshape(R.const([[1], [4]], 'int32'), R.shape([2]))",
        "i = R.concat((R.strided_slice(R.astype(k, 'int64'), [0], [1], [2]), R.const([2], 'int64')), axis=0)",
    ),
    HostileProgram(
        what="a kernel copies a constant, of which the twin's stores another element in each pass",
        module=_by_hand(_PAIR, "kept", "x, {}", [1, 7], "(2,)"),
        twin=_by_hand(_PAIR, "renewed", "x, {}", [1, 7], "(2,)"),
        rule="SYM307",
        shows=_reads,
    ),
    HostileProgram(
        what="of two rows that a kernel halves only one is stored",
        module=_halved("row"),
        twin=_halved("rows"),
        rule="SYM208",
        stage="auto",
        shows=_reads,
        signal=SIGSEGV,
    ),
    _written(
        "scatter_elements counts from the end, and one index lies in front of the first",
        f"R.scatter_elements(x, {_const([-5, 1])}, u, axis=0)",
        f"R.scatter_elements(x, {_const([-4, 1])}, u, axis=0)",
    ),
    _written(
        "scatter_nd writes behind the last element",
        f"R.scatter_nd(x, {_const([[0], [4]])}, u)",
        f"R.scatter_nd(x, {_const([[0], [3]])}, u)",
    ),
)

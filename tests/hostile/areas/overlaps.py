"""Kernels that are handed one memory as two arguments, and write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from tests.hostile.machine import Machine, floats, gives
from tests.hostile.program import HostileProgram

_KERNELS = """
    @T.prim_func
    def transpose(a: T.Buffer((4, 4), "float32"), b: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            b[i, j] = a[j, i]

    @T.prim_func
    def join(first: T.handle, second: T.handle, out: T.handle):
        n = T.int64()
        a = T.match_buffer(first, (n,), "float32")
        b = T.match_buffer(second, (n,), "float32")
        c = T.match_buffer(out, (n * 2,), "float32", elem_offset=T.int64(), offset_factor=16)
        for i in range(n * 2):
            c[i] = T.if_then_else(i >= n, b[i - n], a[i])

    @T.prim_func
    def double(source: T.handle, out: T.handle):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32", offset_factor=1)
        b = T.match_buffer(out, (n,), "float32", offset_factor=1)
        for i in range(n):
            b[i] = a[i] * T.float32(2)

    @T.prim_func
    def multiply(left: T.handle, right: T.handle, out: T.handle):
        a = T.match_buffer(left, (4, 4), "float32")
        w = T.match_buffer(right, (4, 4), "float32")
        c = T.match_buffer(out, (4, 4), "float32")
        for i, j in T.grid(4, 4):
            c[i, j] = T.float32(0)
            for k in range(4):
                c[i, j] = c[i, j] + a[i, k] * w[k, j]

    @T.prim_func
    def center(source: T.handle, out: T.handle):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32")
        b = T.match_buffer(out, (n,), "float32")
        total = T.alloc_buffer((1,), "float32")
        total[0] = T.float32(0)
        for i in range(n):
            total[0] = total[0] + a[i]
        for i in range(n):
            b[i] = total[0]

    @T.prim_func
    def sums(source: T.handle, out: T.handle):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32")
        b = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            b[i] = T.float32(0)
        for i, k in T.grid(n, n):
            if k <= i:
                b[i] = b[i] + a[k]

    @T.prim_func
    def gather(source: T.handle, order: T.handle, out: T.handle):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32")
        p = T.match_buffer(order, (n,), "int64")
        b = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            b[i] = a[p[i]]

    @T.prim_func
    def split(source: T.handle, even: T.handle, odd: T.handle):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32")
        b = T.match_buffer(even, (n,), "float32")
        c = T.match_buffer(odd, (n,), "float32")
        for i in range(n):
            b[i] = a[i] + T.float32(1)
            c[i] = a[i] - T.float32(1)
"""
_HEAD = """
    @R.function(pure=False)
    def main({parameters}) -> {result}:
"""
_N, _FOUR = 'R.Tensor(("n",), "float32")', 'R.Tensor((4, 4), "float32")'


def _module(parameters: str, result: str, *lines: str, private: str = "") -> str:
    head = _HEAD.format(parameters=parameters, result=result)
    body = "".join(
        f"        {line}\n" for line in (*(["n = T.int64()"] if '"n"' in parameters else []), *lines)
    )
    return "@I.ir_module\nclass Module:" + _KERNELS + private + head + body


def _storage(size: str) -> str:
    return (
        f's = R.memory.alloc_storage(R.shape([{size}]), R.prim_value(0), R.str("global"), R.dtype("uint8"))'
    )


def _tensor(name: str, offset: str) -> str:
    return f'{name} = R.memory.alloc_tensor(s, R.prim_value({offset}), R.shape([n]), R.dtype("float32"))'


def _overlap(
    what: str,
    bad: str,
    twin: str,
    right: tuple[Any, Any] | None,
    *arguments: Any,
    **more: Any,
) -> HostileProgram:
    """`right`: what the program would give if each tensor had memory of its own, and what its twin gives."""
    shows: Callable[[Machine, Machine], bool] | None = None
    if right is not None:
        meant, given = right

        def shows(one: Machine, other: Machine) -> bool:
            return not gives(one, meant, *arguments) and gives(other, given, *arguments)

    return HostileProgram(**{"shows": shows, **more}, what=what, module=bad, twin=twin, rule="SYM211")


_M, _V, _L = floats(4, 4), floats(20), floats(40)
_SHIFTED = _module(
    f"x: {_N}",
    _N,
    _storage("n * 8 + 256"),
    _tensor("a", "0"),
    _tensor("b", "<>"),
    "Module.double(x, a)",
    "Module.double(a, b)",
    "again = R.memory.ensure_zero_offset(b)",
    "y = R.add(again, again)",
    "return y",
)
_JOINED = _module(
    f"x: {_N}",
    'R.Tensor(dtype="float32", ndim=1)',
    _storage("n * 192"),
    _tensor("a", "0"),
    'c = R.memory.alloc_tensor(s, R.prim_value(<>), R.shape([n * 2]), R.dtype("float32"))',
    "Module.double(x, a)",
    "Module.join(x, a, c)",
    "again = R.memory.ensure_zero_offset(c)",
    "y = R.add(again, again)",
    "return y",
)
_SUMMED = _module(f"x: {_N}", _N, "y = R.add(x, x)", "z = R.add(x, x)", "Module.sums(y, <>)", "return <>")
_GATHERED = _module(
    f'x: {_N}, p: R.Tensor(("n",), "int64")',
    _N,
    "y = R.add(x, x)",
    "z = R.add(x, x)",
    "Module.gather(y, p, <>)",
    "return <>",
)
_BOTH = _module(
    f"x: {_N}",
    f"R.Tuple({_N}, {_N})",
    "y = R.add(x, x)",
    "z = R.add(x, x)",
    "Module.split(x, y, <>)",
    "return (y, <>)",
)
_LIBRARY = """
    @T.prim_func
    def hand_on(left: T.handle, right: T.handle, out: T.handle):
        T.evaluate(T.call_extern("int32", "multiply_floats", left, right, out))
"""


def _pair(text: str, bad: str, twin: str) -> tuple[str, str]:
    return text.replace("<>", bad), text.replace("<>", twin)


_TWICE = np.concatenate([2 * _V, 4 * _V])

_UNSIZED = """
@I.ir_module
class Module:
    @T.prim_func
    def transpose(a: T.handle, b: T.handle):
        n = T.int64()
        m = T.int64()
        source = T.match_buffer(a, (n, m), "float32")
        out = T.match_buffer(b, (m, n), "float32")
        for i, j in T.grid(n, m):
            out[j, i] = source[i, j]

    @R.function(pure=False)
    def main(x: R.Tensor((4, 4), "float32"), k: R.Shape(ndim=2)) -> R.Tensor(dtype="float32", ndim=2):
        s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        t = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4, 4]), R.dtype("float32"))
        b: R.Tensor(dtype="float32", ndim=2) = R.memory.alloc_tensor(
            <>, R.prim_value(0), k, R.dtype("float32")
        )
        Module.transpose(x, a)
        Module.transpose(a, b)
        return b
"""


def _transposed_twice(bad: Machine, twin: Machine) -> bool:
    given = floats(4, 4), tvm.runtime.ShapeTuple([4, 4])
    return gives(twin, floats(4, 4), *given) and not gives(bad, floats(4, 4), *given)


PROGRAMS: tuple[HostileProgram, ...] = (
    _overlap(
        "two tensors are joined where the second lies: its first elements are lost before they are read",
        _JOINED.replace("<>", "0"),
        _JOINED.replace("<>", "n * 64"),
        (_TWICE, _TWICE),
        _V,
        on_line="Module.join(x, a, c)",
    ),
    _overlap(
        "an elementwise kernel whose result lies 64 bytes behind its input",
        *_pair(_SHIFTED, "64", "n // 16 * 64 + 64"),
        (8 * _L, 8 * _L),
        _L,
        verdict="runtime-check",
        counterexample={"n": 17},
        on_line="Module.double(a, b)",
    ),
    _overlap(
        "a reduction over what was read a moment ago",
        *_pair(_SUMMED, "y", "z"),
        (2 * np.cumsum(_V), 2 * np.cumsum(_V)),
        _V,
        on_line="Module.sums",
    ),
    _overlap(
        "elements are gathered over their source, at indices that depend on data",
        *_pair(_GATHERED, "y", "z"),
        (2 * _V[::-1], 2 * _V[::-1]),
        _V,
        np.arange(20, dtype=np.int64)[::-1].copy(),
        on_line="Module.gather",
    ),
    _overlap(
        "a kernel writes two results to one tensor",
        *_pair(_BOTH, "y", "z"),
        ([_V + 1, _V - 1], [_V + 1, _V - 1]),
        _V,
        on_line="Module.split",
    ),
    _overlap(
        "a kernel that has read all of its input before it writes over it: right today, too",
        *_pair(
            _module(
                f"x: {_N}", _N, "y = R.add(x, x)", "z = R.add(x, x)", "Module.center(y, <>)", "return <>"
            ),
            "y",
            "z",
        ),
        None,
        severity="warning",
        shows=lambda bad, twin: gives(bad, 0 * _V + 420, _V) and gives(twin, 0 * _V + 420, _V),
    ),
    _overlap(
        "a kernel that stores to what it loads from, beside a library that is given two equal inputs",
        *_pair(
            _module(
                f"x: {_FOUR}", _FOUR, "y = R.add(x, x)", "z = R.add(x, x)", "<>", "return z", private=_LIBRARY
            ),
            "Module.multiply(y, z, z)",
            "Module.hand_on(y, y, z)",
        ),
        None,
        on_line="Module.multiply",
    ),
    _overlap(
        "a transpose into a tensor of a shape that is not known, in the memory of its input",
        _UNSIZED.replace("<>", "s"),
        _UNSIZED.replace("<>", "t"),
        None,
        severity="warning",
        on_line="Module.transpose(a, b)",
        shows=_transposed_twice,
    ),
)

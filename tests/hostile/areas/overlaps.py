"""Kernels that are handed one memory as two arguments, and write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

from tests.hostile.machine import differs, floats, gives
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import VECTOR, N, function, kernel, module, storage, tensor

_GRID = "for i, j in T.grid(4, 4):"
_KERNELS = "".join(
    (
        kernel(
            "join",
            "for i in range(n * 2):",
            "    c[i] = T.if_then_else(i >= n, b[i - n], a[i])",
            a="n",
            b="n",
            c="n * 2",
            anywhere="c",
        ),
        kernel("double", VECTOR, "    b[i] = a[i] * T.float32(2)", a="n", b="n", anywhere="ab", factor="1"),
        kernel(
            "multiply",
            _GRID,
            "    c[i, j] = T.float32(0)",
            "    for k in range(4):",
            "        c[i, j] = c[i, j] + a[i, k] * w[k, j]",
            **dict.fromkeys("awc", "4, 4"),
        ),
        kernel(
            "center",
            'total = T.alloc_buffer((1,), "float32")',
            "total[0] = T.float32(0)",
            *(VECTOR, "    total[0] = total[0] + a[i]"),
            *(VECTOR, "    b[i] = total[0]"),
            **dict.fromkeys("ab", "n"),
        ),
        kernel(
            "sums",
            *(VECTOR, "    b[i] = T.float32(0)"),
            *("for i, k in T.grid(n, n):", "    if k <= i:", "        b[i] = b[i] + a[k]"),
            **dict.fromkeys("ab", "n"),
        ),
        kernel(
            "split",
            *(VECTOR, "    b[i] = a[i] + T.float32(1)", "    c[i] = a[i] - T.float32(1)"),
            **dict.fromkeys("abc", "n"),
        ),
        """
    @T.prim_func
    def gather(a_: T.handle, p_: T.handle, b_: T.handle):
        n = T.int64()
        a = T.match_buffer(a_, (n,), "float32")
        p = T.match_buffer(p_, (n,), "int64")
        b = T.match_buffer(b_, (n,), "float32")
        for i in range(n):
            b[i] = a[p[i]]

    @T.prim_func
    def hand_on(left: T.handle, right: T.handle, out: T.handle):
        T.evaluate(T.call_extern("int32", "multiply_floats", left, right, out))
""",
        kernel("transpose", "for i, j in T.grid(n, m):", "    b[j, i] = a[i, j]", a="n, m", b="m, n"),
    )
)


def _overlap(
    what: str,
    parameters: str,
    result: str,
    *lines: str,
    right: Any = None,
    of: tuple[Any, ...] = (),
    **more: Any,
) -> HostileProgram:
    """`right`: what both would give if each tensor had memory of its own, and the twin gives."""
    shows = None if right is None else differs(right, right, *of)
    text = module(_KERNELS, function(parameters, *lines, result=result))
    return hostile(what, "SYM211", text, **{"shows": shows, **more})


_V, _L = floats(20), floats(40)
_X, _SUMS = f"x: {N}", ("y = R.add(x, x)", "z = R.add(x, x)")


PROGRAMS: tuple[HostileProgram, ...] = (
    _overlap(
        "two tensors are joined where the second lies: its first elements are lost before they are read",
        _X,
        'R.Tensor(dtype="float32", ndim=1)',
        f"s = {storage('n * 192')}",
        f"a = {tensor('s', 'n')}",
        f"c = {tensor('s', 'n * 2', '<<0|n * 64>>')}",
        "Module.double(x, a)",
        "Module.join(x, a, c)",
        "again = R.memory.ensure_zero_offset(c)",
        "y = R.add(again, again)",
        "return y",
        right=np.concatenate([2 * _V, 4 * _V]),
        of=(_V,),
        on_line="Module.join(x, a, c)",
    ),
    _overlap(
        "an elementwise kernel whose result lies 64 bytes behind its input",
        _X,
        N,
        f"s = {storage('n * 8 + 256')}",
        f"a = {tensor('s', 'n')}",
        f"b = {tensor('s', 'n', '<<64|n // 16 * 64 + 64>>')}",
        "Module.double(x, a)",
        "Module.double(a, b)",
        "again = R.memory.ensure_zero_offset(b)",
        "y = R.add(again, again)",
        "return y",
        right=8 * _L,
        of=(_L,),
        verdict="runtime-check",
        counterexample={"n": 17},
        on_line="Module.double(a, b)",
    ),
    _overlap(
        "a reduction over what was read a moment ago",
        _X,
        N,
        *(*_SUMS, "Module.sums(y, <<y|z>>)", "return <<y|z>>"),
        right=2 * np.cumsum(_V),
        of=(_V,),
        on_line="Module.sums",
    ),
    _overlap(
        "elements are gathered over their source, at indices that depend on data",
        f'{_X}, p: R.Tensor(("n",), "int64")',
        N,
        *(*_SUMS, "Module.gather(y, p, <<y|z>>)", "return <<y|z>>"),
        right=2 * _V[::-1],
        of=(_V, np.arange(20, dtype=np.int64)[::-1].copy()),
        on_line="Module.gather",
    ),
    _overlap(
        "a kernel writes two results to one tensor",
        _X,
        f"R.Tuple({N}, {N})",
        *(*_SUMS, "Module.split(x, y, <<y|z>>)", "return (y, <<y|z>>)"),
        right=[_V + 1, _V - 1],
        of=(_V,),
        on_line="Module.split",
    ),
    _overlap(
        "a kernel that has read all of its input before it writes over it: right today, too",
        _X,
        N,
        *(*_SUMS, "Module.center(y, <<y|z>>)", "return <<y|z>>"),
        severity="warning",
        shows=lambda bad, twin: gives(bad, 0 * _V + 420, _V) and gives(twin, 0 * _V + 420, _V),
    ),
    _overlap(
        "a kernel that stores to what it loads from, beside a library that is given two equal inputs",
        'x: R.Tensor((4, 4), "float32")',
        'R.Tensor((4, 4), "float32")',
        *(*_SUMS, "Module.<<multiply(y, z, z)|hand_on(y, y, z)>>", "return z"),
        on_line="Module.multiply",
    ),
    _overlap(
        "a transpose into a tensor of a shape that is not known, in the memory of its input",
        'x: R.Tensor((4, 4), "float32"), k: R.Shape(ndim=2)',
        'R.Tensor(dtype="float32", ndim=2)',
        f"s = {storage('64')}",
        f"t = {storage('64')}",
        f"a = {tensor('s', '4, 4')}",
        'b: R.Tensor(dtype="float32", ndim=2) = R.memory.alloc_tensor('
        '<<s|t>>, R.prim_value(0), k, R.dtype("float32"))',
        "Module.transpose(x, a)",
        "Module.transpose(a, b)",
        "return b",
        right=floats(4, 4),
        of=(floats(4, 4), tvm.runtime.ShapeTuple([4, 4])),
        severity="warning",
        on_line="Module.transpose(a, b)",
    ),
)

"""Memory that is read, or returned, while nothing has written it: always, on some path, for some shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tests.hostile.machine import Array, Machine, depends_on_storages, floats, gives
from tests.hostile.program import HostileProgram

_KERNELS = """
@I.ir_module
class Module:
    @T.prim_func
    def copy(source: T.handle, out: T.handle):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32")
        b = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            b[i] = a[i]

    @T.prim_func
    def fill(out: T.handle):
        n = T.int64()
        b = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            b[i] = T.float32(3)
"""
_FRESH = 'R.builtin.alloc_tensor(R.shape([{}]), R.dtype({}), R.prim_value(0), R.str("global"))'
_F16 = _FRESH.format("16", '"float32"')


Shows: TypeAlias = Callable[[Machine, Machine], bool]


def _depends(*arguments: Array) -> Shows:
    """The program's result depends on what storages held before, the twin's does not."""

    def shows(bad: Machine, twin: Machine) -> bool:
        return depends_on_storages(bad, *arguments) and not depends_on_storages(twin, *arguments)

    return shows


_ORDER = f"""
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        b = {_F16}
        FIRST
        SECOND
        return b
"""
_CARRIED = f"""
    @T.prim_func
    def scan(source: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = T.if_then_else(i > FIRST, out[i - BACK], T.float32(0)) + source[i]

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        Module.scan(x, a)
        return a
"""
_BACKWARDS = f"""
    @T.prim_func
    def flip(source: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(COUNT):
            out[15 - i] = source[i]

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        Module.flip(x, a)
        return a
"""
_SLICED = f"""
    @T.prim_func
    def half(source: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(8):
            out[i] = source[i]

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((8,), "float32"):
        a = {_F16}
        b = {_F16}
        Module.half(x, DEST)
        y = R.strided_slice(a, (R.prim_value(0),), (R.prim_value(0),), (R.prim_value(8),))
        return y
"""
_FIRST = f"""
    @T.prim_func
    def first(out: T.Buffer((16,), "float32")):
        out[0] = T.float32(1)

    @T.prim_func
    def others(source: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(15):
            out[i + 1] = source[i + 1]

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        if c:
            Module.first(a)
            r = x
        else:
            ELSE
            r = x
        Module.others(x, a)
        return a
"""
_REST = f"""
    @T.prim_func
    def rest(source: T.handle, out: T.Buffer((1,), "float32")):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32")
        BEFORE
        for k in range(n - 4):
            if k == 0:
                out[0] = T.float32(0)
            out[0] = out[0] + a[k + 4]

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor((1,), "float32"):
        s = {_FRESH.format("1", '"float32"')}
        Module.rest(x, s)
        return s
"""
_CALLEE = f"""
    @R.function(private=True, pure=False)
    def made(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        t = {_F16}
        WRITE
        return t

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        t = Module.made(x)
        y = R.add(t, x)
        return y
"""
_TEST = f"""
    @T.prim_func
    def decide(out: T.Buffer((), "bool")):
        out[()] = T.bool(True)

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        c = {_FRESH.format("", '"bool"')}
        DECIDE
        if c:
            r = R.add(x, x)
        else:
            r = R.multiply(x, x)
        return r
"""
_X, _TRUE, _FALSE = floats(16), np.array(True), np.array(False)


def _one_branch(bad: Machine, twin: Machine) -> bool:
    """The result is right on the branch that writes."""
    right = not depends_on_storages(bad, _X, _TRUE) and depends_on_storages(bad, _X, _FALSE)
    return right and not depends_on_storages(twin, _X, _FALSE)


def _no_elements(bad: Machine, twin: Machine) -> bool:
    """5 elements leave one to sum up, 4 leave none."""
    right = not depends_on_storages(bad, floats(5)) and depends_on_storages(bad, floats(4))
    return right and gives(twin, [0.0], floats(4))


def _unwritten(what: str, text: str, *holes: tuple[str, str, str], **more: Any) -> HostileProgram:
    """What reads memory that nothing wrote: `text` with a wrong and a right piece in place of each hole."""
    bad = twin = _KERNELS + text
    for hole, wrong, right in holes:
        bad, twin = bad.replace(hole, wrong), twin.replace(hole, right)
    more = {"verdict": "always-invalid", **more}
    return HostileProgram(what=what, module=bad, twin=twin, rule="SYM208", **more)


PROGRAMS: tuple[HostileProgram, ...] = (
    _unwritten(
        "the kernel that fills a stands behind the one that reads it",
        _ORDER,
        ("FIRST", "Module.copy(a, b)", "Module.copy(x, a)"),
        ("SECOND", "Module.copy(x, a)", "Module.copy(a, b)"),
        on_line="Module.copy(a, b)",
        shows=_depends(_X),
    ),
    _unwritten(
        "each element is computed from what it held before; in the twin from its left neighbour",
        _CARRIED,
        ("FIRST", "3", "0"),
        ("BACK", "0", "1"),
        on_line="Module.scan(x, a)",
        shows=lambda bad, twin: depends_on_storages(bad, _X) and gives(twin, np.cumsum(_X), _X),
    ),
    _unwritten(
        "a kernel that fills a tensor from its end on stops before its first element",
        _BACKWARDS,
        ("COUNT", "15", "16"),
        on_line="return a",
        shows=lambda bad, twin: depends_on_storages(bad, _X) and gives(twin, _X[::-1], _X),
    ),
    _unwritten(
        "a slice is taken of a tensor that nothing wrote; in the twin just that part was written",
        _SLICED,
        ("DEST", "b", "a"),
        on_line="y = R.strided_slice(",
        shows=lambda bad, twin: depends_on_storages(bad, _X) and gives(twin, _X[:8], _X),
    ),
    _unwritten(
        "one branch writes the first element, all paths write the others",
        _FIRST,
        ("ELSE", "Module.others(x, a)", "Module.first(a)"),
        on_line="return a",
        shows=_one_branch,
    ),
    _unwritten(
        "a sum over the elements from the fifth on is set to 0 with the first of them, if there is one",
        _REST,
        ("BEFORE", "T.evaluate(0)", "out[0] = T.float32(0)"),
        verdict="runtime-check",
        on_line="return s",
        shows=_no_elements,
        severity="warning",
        counterexample={"n": 1},
    ),
    _unwritten(
        "a function returns a tensor that it has not written, and the caller reads it",
        _CALLEE,
        ("WRITE", "Module.fill(x)", "Module.fill(t)"),
        on_line="y = R.add(t, x)",
        shows=_depends(_X),
    ),
    _unwritten(
        "an If tests a tensor that nothing has filled",
        _TEST,
        ("DECIDE", "_ = R.shape_of(c)", "Module.decide(c)"),
    ),
)

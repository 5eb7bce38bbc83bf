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
_FN = _FRESH.format("n", '"float32"')


Shows: TypeAlias = Callable[[Machine, Machine], bool]


def _depends(*arguments: Array) -> Shows:
    """The program's result depends on what storages held before, the twin's does not."""

    def shows(bad: Machine, twin: Machine) -> bool:
        return depends_on_storages(bad, *arguments) and not depends_on_storages(twin, *arguments)

    return shows


_FILL = "for i in range(n):\n            b[i] = T.float32(3)"
_REUSED = """
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        storage = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([16]), R.dtype("float32"))
        Module.copy(x, a)
        y = R.add(a, x)
        b = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([16]), R.dtype("float32"))
        Module.fill(DEST)
        z = R.add(b, y)
        return z
"""
_ORDER = f"""
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        b = {_F16}
        FIRST
        SECOND
        return b
"""
_FEW = f"""
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        a = {_FN}
        b = {_FN}
        Module.fill(a)
        Module.copy(a, b)
        return b
"""
_HALVES = f"""
    @T.prim_func
    def head(out: T.Buffer((16, 4), "float32")):
        for i, j in T.grid(8, 4):
            out[i, j] = T.float32(1)

    @T.prim_func
    def tail(out: T.Buffer((16, 4), "float32")):
        for i, j in T.grid(16 - FROM, 4):
            out[i + FROM, j] = T.float32(2)

    @T.prim_func
    def total(source: T.Buffer((16, 4), "float32"), out: T.Buffer((1,), "float32")):
        out[0] = T.float32(0)
        for i, j in T.grid(16, 4):
            out[0] = out[0] + source[i, j]

    @R.function(pure=False)
    def main(x: R.Tensor((16, 4), "float32")) -> R.Tensor((1,), "float32"):
        a = {_FRESH.format("16, 4", '"float32"')}
        s = {_FRESH.format("1", '"float32"')}
        Module.tail(a)
        Module.head(a)
        Module.total(a, s)
        return s
"""
_COLUMNS = _HALVES.replace("T.grid(8, 4)", "T.grid(16, 2)").replace(
    "for i, j in T.grid(16 - FROM, 4):\n            out[i + FROM, j]",
    "for i, j in T.grid(16, 4 - FROM):\n            out[i, j + FROM]",
)
_BRANCH = f"""
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        if c:
            Module.copy(x, a)
            r = R.add(x, x)
        else:
            Module.OTHER
            r = R.multiply(x, x)
        b = R.add(a, r)
        return b
"""
_BY_SIZE = f"""
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        a = {_FN}
        if R.prim_value(n <= 4):
            Module.copy(x, a)
            r = R.add(x, x)
        else:
            Module.OTHER
            r = R.multiply(x, x)
        b = R.add(a, r)
        return b
"""
_SUM = f"""
    @T.prim_func
    def rows(source: T.Buffer((16, 4), "float32"), out: T.Buffer((16,), "float32")):
        for i, k in T.grid(16, 4):
            START
            out[i] = out[i] + source[i, k]

    @R.function(pure=False)
    def main(x: R.Tensor((16, 4), "float32")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        Module.rows(x, a)
        return a
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
_HANDED = f"""
    @R.function(private=True, pure=False)
    def update(t: R.Tensor((16,), "float32"), out: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        FIRST
        SECOND
        return out

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        t = {_F16}
        out = {_F16}
        done = Module.update(t, out)
        y = R.add(done, x)
        return y
"""
_VIEWS = f"""
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((32,), "float32"):
        arena = {_FRESH.format("32", '"float32"')}
        a = R.memory.view(arena, R.shape([16]), R.dtype("float32"), R.prim_value(0))
        placed = R.memory.view(arena, R.shape([16]), R.dtype("float32"), R.prim_value(64))
        b = R.memory.ensure_zero_offset(placed)
        Module.copy(x, a)
        Module.fill(DEST)
        y = R.add(arena, arena)
        return y
"""
_CALL_TIR = """
    @T.prim_func
    def inner(source: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(COUNT):
            out[i] = source[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        cls = Module
        y = R.call_tir(cls.inner, (x,), out_ty=R.Tensor((16,), "float32"))
        z = R.add(y, x)
        return z
"""
_IN_PLACE = f"""
    @T.prim_func
    def double(data: T.Buffer((16,), "float32")):
        for i in range(16):
            data[i] = data[i] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        b = {_F16}
        Module.copy(x, DEST)
        Module.double(a)
        return a
"""
_RETURNED = f"""
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Any:
        a = {_F16}
        b = {_F16}
        Module.copy(x, a)
        Module.copy(x, DEST)
        pair = (a, b)
        return pair
"""
_TWO_IFS = f"""
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((16,), "float32"):
        a = {_F16}
        if c:
            Module.copy(x, a)
            r = R.add(x, x)
        else:
            r = R.multiply(x, x)
        if c:
            s = R.add(THEN, x)
        else:
            s = R.multiply(ELSE, x)
        b = R.add(r, s)
        return b
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


def _few_rows(bad: Machine, twin: Machine) -> bool:
    """16 elements are right, the 17th is whatever stood there."""
    right = not depends_on_storages(bad, floats(16)) and depends_on_storages(bad, floats(17))
    return right and gives(twin, np.full(17, 3.0), floats(17))


def _one_branch(bad: Machine, twin: Machine) -> bool:
    """The result is right on the branch that writes."""
    right = not depends_on_storages(bad, _X, _TRUE) and depends_on_storages(bad, _X, _FALSE)
    return right and not depends_on_storages(twin, _X, _FALSE)


def _small(bad: Machine, twin: Machine) -> bool:
    """4 elements are right, 5 are not."""
    right = not depends_on_storages(bad, floats(4)) and depends_on_storages(bad, floats(5))
    return right and not depends_on_storages(twin, floats(5))


def _no_elements(bad: Machine, twin: Machine) -> bool:
    """5 elements leave one to sum up, 4 leave none."""
    right = not depends_on_storages(bad, floats(5)) and depends_on_storages(bad, floats(4))
    return right and gives(twin, [0.0], floats(4))


def _unwritten(name: str, what: str, text: str, *holes: tuple[str, str, str], **more: Any) -> HostileProgram:
    """What reads memory that nothing wrote: `text` with a wrong and a right piece in place of each hole."""
    bad = twin = _KERNELS + text
    for hole, wrong, right in holes:
        bad, twin = bad.replace(hole, wrong), twin.replace(hole, right)
    more = {"verdict": "always-invalid", **more}
    return HostileProgram(name=name, what=what, module=bad, twin=twin, rule="SYM208", **more)


PROGRAMS: tuple[HostileProgram, ...] = (
    _unwritten(
        "left-over-of-another-tensor",
        "the kernel that fills b writes a instead; b finds what a left at its place",
        _REUSED,
        ("DEST", "x", "b"),
        on_line="z = R.add(b, y)",
        shows=lambda bad, twin: gives(bad, 3 * _X, _X) and gives(twin, 2 * _X + 3, _X),
    ),
    _unwritten(
        "moved-behind-its-reader",
        "the kernel that fills a stands behind the one that reads it",
        _ORDER,
        ("FIRST", "Module.copy(a, b)", "Module.copy(x, a)"),
        ("SECOND", "Module.copy(x, a)", "Module.copy(a, b)"),
        on_line="Module.copy(a, b)",
        shows=_depends(_X),
    ),
    _unwritten(
        "only-the-first-elements",
        "a kernel fills 16 elements, however many there are",
        _FEW,
        (_FILL, _FILL.replace("range(n)", "range(T.min(n, 16))"), _FILL),
        verdict="runtime-check",
        on_line="Module.copy(a, b)",
        shows=_few_rows,
        counterexample={"n": 17},
    ),
    _unwritten(
        "gap-between-two-kernels",
        "one kernel fills rows 0 to 8, another rows 9 to 16",
        _HALVES,
        ("FROM", "9", "8"),
        on_line="Module.total(a, s)",
        shows=_depends(floats(16, 4)),
    ),
    _unwritten(
        "gap-between-columns",
        "one kernel fills columns 0 to 2, another column 3",
        _COLUMNS,
        ("FROM", "3", "2"),
        on_line="Module.total(a, s)",
        shows=_depends(floats(16, 4)),
    ),
    _unwritten(
        "written-on-one-branch",
        "only the then-branch fills what is read behind the If",
        _BRANCH,
        ("OTHER", "copy(x, x)", "fill(a)"),
        verdict=None,
        on_line="b = R.add(a, r)",
        shows=_one_branch,
    ),
    _unwritten(
        "written-for-small-shapes",
        "only the branch for up to 4 elements fills what is read behind the If",
        _BY_SIZE,
        ("OTHER", "fill(x)", "fill(a)"),
        verdict=None,
        on_line="b = R.add(a, r)",
        shows=_small,
        counterexample={"n": 5},
    ),
    _unwritten(
        "sum-without-start",
        "a sum adds to what was there",
        _SUM,
        ("START", "T.evaluate(0)", "if k == 0:\n                out[i] = T.float32(0)"),
        on_line="Module.rows(x, a)",
        shows=_depends(floats(16, 4)),
    ),
    _unwritten(
        "element-read-before-its-own-store",
        "each element is computed from what it held before; in the twin from its left neighbour",
        _CARRIED,
        ("FIRST", "3", "0"),
        ("BACK", "0", "1"),
        on_line="Module.scan(x, a)",
        shows=lambda bad, twin: depends_on_storages(bad, _X) and gives(twin, np.cumsum(_X), _X),
    ),
    _unwritten(
        "backwards-not-to-the-start",
        "a kernel that fills a tensor from its end on stops before its first element",
        _BACKWARDS,
        ("COUNT", "15", "16"),
        on_line="return a",
        shows=lambda bad, twin: depends_on_storages(bad, _X) and gives(twin, _X[::-1], _X),
    ),
    _unwritten(
        "slice-of-nothing",
        "a slice is taken of a tensor that nothing wrote; in the twin just that part was written",
        _SLICED,
        ("DEST", "b", "a"),
        on_line="y = R.strided_slice(",
        shows=lambda bad, twin: depends_on_storages(bad, _X) and gives(twin, _X[:8], _X),
    ),
    _unwritten(
        "one-part-on-one-branch",
        "one branch writes the first element, all paths write the others",
        _FIRST,
        ("ELSE", "Module.others(x, a)", "Module.first(a)"),
        on_line="return a",
        shows=_one_branch,
    ),
    _unwritten(
        "sum-over-no-elements",
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
        "callee-returns-unwritten-memory",
        "a function returns a tensor that it has not written, and the caller reads it",
        _CALLEE,
        ("WRITE", "Module.fill(x)", "Module.fill(t)"),
        on_line="y = R.add(t, x)",
        shows=_depends(_X),
    ),
    _unwritten(
        "callee-reads-before-it-writes",
        "a function reads the tensor that it was handed before it fills it",
        _HANDED,
        ("FIRST", "Module.copy(t, out)", "Module.fill(t)"),
        ("SECOND", "Module.fill(t)", "Module.copy(t, out)"),
        on_line="Module.copy(t, out)",
        shows=_depends(_X),
    ),
    _unwritten(
        "one-view-of-two",
        "one of two views that make up a tensor is filled, then all of it is read",
        _VIEWS,
        ("DEST", "a", "b"),
        on_line="y = R.add(arena, arena)",
        shows=_depends(_X),
    ),
    _unwritten(
        "call-tir-leaves-elements-out",
        "the kernel of a R.call_tir fills 15 elements of its 16",
        _CALL_TIR,
        ("COUNT", "15", "16"),
        on_line="z = R.add(y, x)",
        shows=_depends(_X),
    ),
    _unwritten(
        "updated-in-place-before-written",
        "a kernel doubles a tensor that nothing has filled",
        _IN_PLACE,
        ("DEST", "b", "a"),
        on_line="Module.double(a)",
        shows=_depends(_X),
    ),
    _unwritten(
        "returned-in-a-tuple",
        "one field of the result is a tensor that nothing has filled",
        _RETURNED,
        ("DEST", "a", "b"),
        on_line="return pair",
        shows=_depends(_X),
    ),
    _unwritten(
        "two-ifs-on-one-condition",
        "filled where the condition is true, read where the same condition is false",
        _TWO_IFS,
        ("THEN", "r", "a"),
        ("ELSE", "a", "r"),
        verdict=None,
        on_line="s = R.multiply(a, x)",
        shows=_one_branch,
    ),
    _unwritten(
        "condition-that-nothing-wrote",
        "an If tests a tensor that nothing has filled",
        _TEST,
        ("DECIDE", "_ = R.shape_of(c)", "Module.decide(c)"),
    ),
)

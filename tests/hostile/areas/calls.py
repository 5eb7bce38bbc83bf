"""Memory across functions: storages as arguments and results, order inside a callee, recursion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.hostile.any_length import COPY, MODULE, ONES, PLUS, plus, storage, tensor
from tests.hostile.machine import Array, Machine, fails, floats, gives
from tests.hostile.program import HostileProgram

_KERNELS = MODULE + ONES + COPY + PLUS


def _told(good: list[Any], bad: list[Any] | None, *arguments: Array) -> Callable[[Machine, Machine], bool]:
    """The twin gives `good`, and the program `bad`, or anything else where that is None."""

    def shows(program: Machine, twin: Machine) -> bool:
        wrong = gives(program, good if bad is None else bad, *arguments) is not (bad is None)
        return gives(twin, good, *arguments) and wrong

    return shows


def _changed(
    name: str, what: str, module: str, change: tuple[str, str], on_line: str | None = None, **more: Any
) -> HostileProgram:
    """A piece of the module is another one in its twin; some read finds what was written over."""
    about = {"rule": "SYM203", "verdict": "always-invalid", **more}
    return HostileProgram(
        name=name, what=what, module=module, twin=module.replace(*change), on_line=on_line, **about
    )


_V16, _V = 'R.Tensor((16,), "float32")', 'R.Tensor(("n",), "float32")'

_COPIES = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def helper(s: R.Object, x: {_V}) -> {_V}:
        n = T.int64()
        t = {tensor("s", "n")}
        Module.copy(x, t)
        y = {plus("t", "x", "n")}
        return y

"""
_PLACES = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def place(s: R.Object, x: {_V16}) -> {_V16}:
        t = {tensor("s")}
        Module.copy(x, t)
        return t

"""
_MAYBE = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def helper(s: R.Object, x: {_V16}, flag: R.Tensor((), "bool")) -> {_V16}:
        if flag:
            t = {tensor("s")}
            Module.ones(t)
            y = {plus("t", "x")}
        else:
            y = {plus("x", "x")}
        return y

"""

# a callee writes on a storage that it is handed, next to what the caller keeps there
_NEIGHBOUR = f"""{_COPIES}    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> {_V16}:
        m = T.int64()
        storage = {storage("m * 4 + 256")}
        kept = {tensor("storage", offset="128")}
        Module.ones(kept)
        z = Module.helper(storage, x)
        y = {plus("kept", "kept")}
        return y
"""

_ORDER = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def helper(p: {_V16}, q: {_V16}) -> {_V16}:
        Module.ones(p)
        y = {plus("q", "q")}
        z = {plus("p", "y")}
        return z

    @R.function(pure=False)
    def main(x: {_V16}) -> {_V16}:
        storage = {storage("128")}
        p = {tensor("storage")}
        q = {tensor("storage")}
        Module.copy(x, q)
        z = Module.helper(p, q)
        return z
"""

_TWO_RESULTS = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def pair(x: {_V}) -> R.Tuple({_V}, {_V16}):
        n = T.int64()
        s = {storage("n * 64 + 128")}
        a = {tensor("s", "n")}
        b = {tensor("s", offset="64")}
        Module.ones(b)
        Module.copy(x, a)
        return (a, b)

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> {_V16}:
        both = Module.pair(x)
        b = both[1]
        y = {plus("b", "b")}
        return y
"""

_USED_FURTHER = f"""{_PLACES}    @R.function(pure=False)
    def main(x: {_V16}) -> {_V16}:
        storage = {storage("256")}
        t = Module.place(storage, x)
        b = {tensor("storage")}
        Module.ones(b)
        y = {plus("t", "b")}
        return y
"""

_TWICE = f"""{_PLACES}    @R.function(pure=False)
    def main(x: {_V16}, y: {_V16}) -> {_V16}:
        one = {storage("64")}
        two = {storage("64")}
        a = Module.place(one, x)
        b = Module.place(one, y)
        z = {plus("a", "b")}
        return z
"""

_STORAGE_OF_CALLEE = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def reserve(x: {_V}) -> R.Object:
        n = T.int64()
        s = {storage("n * 4")}
        return s

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> {_V16}:
        m = T.int64()
        storage = Module.reserve(x)
        t = {tensor("storage")}
        Module.ones(t)
        y = {plus("t", "t")}
        return y
"""

_TOO_SMALL = f"""{_COPIES}    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        storage = {storage("64")}
        z = Module.helper(storage, x)
        return z
"""

_ONE_FOR_BOTH = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def helper(s: R.Object, r: R.Object, x: {_V16}) -> {_V16}:
        a = {tensor("s")}
        b = {tensor("r")}
        Module.copy(x, a)
        Module.ones(b)
        y = {plus("a", "b")}
        return y

    @R.function(pure=False)
    def main(x: {_V16}) -> {_V16}:
        one = {storage("64")}
        two = {storage("64")}
        z = Module.helper(one, one, x)
        return z
"""

_TUPLE = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def open(x: {_V16}) -> R.Tuple(R.Object, {_V16}, R.Object):
        s = {storage("64")}
        r = {storage("64")}
        t = {tensor("s")}
        Module.copy(x, t)
        return (s, t, r)

    @R.function(pure=False, private=True)
    def write(pair: R.Tuple({_V16}, R.Object)) -> {_V16}:
        s = pair[1]
        t = {tensor("s")}
        Module.ones(t)
        y = {plus("t", "t")}
        return y

    @R.function(pure=False)
    def main(x: {_V16}) -> {_V16}:
        opened = Module.open(x)
        s = opened[0]
        t = opened[1]
        pair = (t, s)
        y = Module.write(pair)
        z = {plus("t", "y")}
        return z
"""

_TWO_LEVELS = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def inner(s: R.Object) -> {_V16}:
        t = {tensor("s")}
        Module.ones(t)
        y = {plus("t", "t")}
        return y

    @R.function(pure=False, private=True)
    def outer(s: R.Object) -> {_V16}:
        y = Module.inner(s)
        z = {plus("y", "y")}
        return z

    @R.function(pure=False)
    def main(x: {_V16}) -> {_V16}:
        storage = {storage("128")}
        kept = {tensor("storage")}
        Module.copy(x, kept)
        y = Module.outer(storage)
        z = {plus("kept", "y")}
        return z
"""

_RECURSION = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def descend(s: R.Object, x: {_V16}, more: R.Tensor((), "bool"), last: R.Tensor((), "bool")) -> {_V16}:
        t = {tensor("s")}
        Module.copy(x, t)
        if more:
            r = {plus("x", "x")}
            deep = Module.descend(s, r, last, last)
            y = {plus("t", "deep")}
        else:
            y = {plus("t", "t")}
        return y

    @R.function(pure=False)
    def main(x: {_V16}, more: R.Tensor((), "bool"), last: R.Tensor((), "bool")) -> {_V16}:
        storage = {storage("64")}
        z = Module.descend(storage, x, more, last)
        return z
"""

_RECURSION_TWIN = _RECURSION.replace(
    f"""        t = {tensor("s")}
        Module.copy(x, t)
        if more:""",
    f"""        fresh = {storage("64")}
        t = {tensor("fresh")}
        Module.copy(x, t)
        if more:""",
)

# from the fifth call on a tensor lies where that of the first lies
_DEEP = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def descend(s: R.Object, a: R.Shape(["k"]), x: {_V16}, more: R.Tensor((), "bool")) -> {_V16}:
        k = T.int64()
        t = {tensor("s", offset="k % 5 * 64")}
        Module.copy(x, t)
        if more:
            deep = Module.descend(s, R.shape([k + 1]), x, more)
            y = {plus("t", "deep")}
        else:
            y = {plus("t", "t")}
        return y

    @R.function(pure=False)
    def main(x: {_V16}, more: R.Tensor((), "bool")) -> {_V16}:
        storage = {storage("320")}
        z = Module.descend(storage, R.shape([0]), x, more)
        return z
"""

_DEEP_TWIN = _DEEP.replace(
    f"""        t = {tensor("s", offset="k % 5 * 64")}
""",
    f"""        fresh = {storage("320")}
        t = {tensor("fresh", offset="k % 5 * 64")}
""",
)

_ON_ONE_BRANCH = f"""{_MAYBE}    @R.function(pure=False)
    def main(x: {_V16}, again: R.Tensor((), "bool")) -> {_V16}:
        storage = {storage("128")}
        kept = {tensor("storage")}
        Module.copy(x, kept)
        y = Module.helper(storage, x, again)
        z = {plus("kept", "y")}
        return z
"""

_VIEW_OF_PARAMETER = f"""{_KERNELS}
    @R.function(pure=False, private=True)
    def half(x: {_V16}) -> R.Tensor((8,), "float32"):
        y = R.memory.view(x, R.shape([8]), R.dtype("float32"), R.prim_value(0))
        return y

    @R.function(pure=False)
    def main(x: {_V16}) -> R.Tensor((8,), "float32"):
        storage = {storage("128")}
        a = {tensor("storage")}
        Module.copy(x, a)
        lower = Module.half(a)
        b = {tensor("storage")}
        Module.ones(b)
        z = {plus("lower", "lower", "8")}
        return z
"""

_OPAQUE = f"""{_KERNELS}
    @R.function(pure=False)
    def main(x: {_V16}) -> {_V16}:
        storage = {storage("128")}
        spare = {storage("128")}
        kept = {tensor("storage")}
        Module.copy(x, kept)
        gone = R.call_packed("library.scribble", storage, ty_args=(R.Tuple(),))
        z = {plus("kept", "kept")}
        return z
"""

_AT_AN_OFFSET = f"""{_KERNELS}
    @T.prim_func
    def plain(source: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = source[i]

    @R.function(pure=False, private=True)
    def pair(x: {_V16}) -> R.Tuple({_V16}, {_V16}):
        s = {storage("128")}
        a = {tensor("s")}
        b = {tensor("s", offset="64")}
        Module.copy(x, a)
        Module.copy(x, b)
        return (a, b)

    @R.function(pure=False)
    def main(x: {_V16}) -> {_V16}:
        both = Module.pair(x)
        b = both[1]
        y = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0))
        Module.plain(b, y)
        return y
"""

# whether the callee overwrites and whether the caller reads hang on one flag
_ONE_FLAG = f"""{_MAYBE}    @R.function(pure=False)
    def main(x: {_V16}, flag: R.Tensor((), "bool")) -> {_V16}:
        storage = {storage("64")}
        kept = {tensor("storage")}
        Module.copy(x, kept)
        y = Module.helper(storage, x, flag)
        if flag:
            z = {plus("kept", "y")}
        else:
            z = {plus("x", "y")}
        return z
"""

PROGRAMS: tuple[HostileProgram, ...] = (
    HostileProgram(
        name="callee-outgrows-its-part",
        what="what a callee writes on the storage that it is handed reaches what the caller keeps there",
        module=_NEIGHBOUR,
        twin=_NEIGHBOUR.replace("n * 4", "n * 4").replace(
            tensor("storage", offset="128"), tensor("storage", offset="(m + 15) // 16 * 64")
        ),
        rule="SYM203",
        verdict="runtime-check",
        counterexample={"m": 33},
        on_line="Module.copy(x, t)",
        shows=_told([[2.0] * 16], None, floats(40)),
    ),
    _changed(
        "callee-writes-before-it-reads",
        "a callee writes p before it reads q, and both have the same bytes",
        _ORDER,
        (
            f"        Module.ones(p)\n        y = {plus('q', 'q')}\n",
            f"        y = {plus('q', 'q')}\n        Module.ones(p)\n",
        ),
        "Module.ones(p)",
        shows=_told([2 * floats(16) + 1], [[3.0] * 16], floats(16)),
    ),
    _changed(
        "results-of-a-callee-overlap",
        "two results of one callee share bytes from n = 17 on",
        _TWO_RESULTS,
        (tensor("s", offset="64"), tensor("s", offset="n * 64")),
        "Module.copy(x, a)",
        verdict="runtime-check",
        shows=_told([[2.0] * 16], None, floats(20)),
    ),
    _changed(
        "result-on-a-storage-used-further",
        "the caller writes where the callee put its result",
        _USED_FURTHER,
        (f"b = {tensor('storage')}", f"b = {tensor('storage', offset='64')}"),
        "Module.ones(b)",
        shows=_told([floats(16) + 1], [[2.0] * 16], floats(16)),
    ),
    _changed(
        "called-twice-with-one-storage",
        "the second call overwrites the result of the first",
        _TWICE,
        ("Module.place(one, y)", "Module.place(two, y)"),
        "Module.copy(x, t)",
        shows=_told([3 * floats(16)], [4 * floats(16)], floats(16), 2 * floats(16)),
    ),
    _changed(
        "storage-of-a-callee-is-too-small",
        "a callee reserves 4*n bytes, of which the caller takes 64",
        _STORAGE_OF_CALLEE,
        (storage("n * 4"), storage("n * 4 + 64")),
        "t = R.memory.alloc_tensor",
        verdict=None,
        rule="SYM101",
    ),
    _changed(
        "callee-outgrows-the-storage",
        "a callee places n floats on a storage of 64 bytes that it is handed",
        _TOO_SMALL,
        (storage("64"), storage("m * 4")),
        "t = R.memory.alloc_tensor",
        rule="SYM101",
        verdict="runtime-check",
        counterexample={"m": 17},
    ),
    _changed(
        "one-storage-for-two-parameters",
        "a callee is handed the same storage twice",
        _ONE_FOR_BOTH,
        ("Module.helper(one, one, x)", "Module.helper(one, two, x)"),
        "Module.ones(b)",
        shows=_told([floats(16) + 1], [[2.0] * 16], floats(16)),
    ),
    _changed(
        "storages-in-tuples",
        "a storage comes out of a tuple, and goes into another one, to be written on",
        _TUPLE,
        ("s = opened[0]", "s = opened[2]"),
        "Module.ones(t)",
        shows=_told([floats(16) + 2], [[3.0] * 16], floats(16)),
    ),
    _changed(
        "two-levels-below",
        "a callee of a callee writes over what the caller keeps",
        _TWO_LEVELS,
        (tensor("s"), tensor("s", offset="64")),
        "Module.ones(t)",
        shows=_told([floats(16) + 4], [[5.0] * 16], floats(16)),
    ),
    HostileProgram(
        name="recursion-over-one-storage",
        what="each call of a recursion writes where its caller keeps what it reads afterwards",
        module=_RECURSION,
        twin=_RECURSION_TWIN,
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.copy(x, t)",
        also=frozenset({"SYM904"}),
    ),
    HostileProgram(
        name="recursion-comes-round",
        what="the sixth call of a recursion writes where the first one keeps what it reads afterwards",
        module=_DEEP,
        twin=_DEEP_TWIN,
        rule="SYM904",
        severity="warning",
    ),
    _changed(
        "callee-overwrites-on-one-branch",
        "a callee overwrites what the caller keeps, on one of two branches",
        _ON_ONE_BRANCH,
        (tensor("s"), tensor("s", offset="64")),
        "Module.ones(t)",
    ),
    _changed(
        "view-of-a-parameter",
        "a callee returns a view of its argument, whose memory is taken over",
        _VIEW_OF_PARAMETER,
        (f"b = {tensor('storage')}", f"b = {tensor('storage', offset='64')}"),
        "Module.ones(b)",
    ),
    _changed(
        "storage-handed-to-a-packed-function",
        "a packed function is given a storage, and may write anywhere on it",
        _OPAQUE,
        ('"library.scribble", storage', '"library.scribble", spare'),
        verdict=None,
        rule="SYM904",
        severity="warning",
    ),
    _changed(
        "result-at-a-byte-offset",
        "a callee returns a tensor at byte 64, which goes to a kernel that takes none but at byte 0",
        _AT_AN_OFFSET,
        ("b = both[1]", "b = both[0]"),
        "Module.plain(b, y)",
        verdict=None,
        rule="SYM303",
        shows=lambda bad, twin: (
            gives(twin, [floats(16)], floats(16)) and fails(bad, "byte_offset", floats(16))
        ),
    ),
    HostileProgram(
        name="one-flag-for-callee-and-caller",
        what="the callee overwrites where the caller reads, if one flag is set; in the twin if not",
        module=_ONE_FLAG,
        twin=_ONE_FLAG.replace(plus("kept", "y"), "KEPT")
        .replace(f"z = {plus('x', 'y')}", f"z = {plus('kept', 'y')}")
        .replace("KEPT", plus("x", "y")),
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.ones(t)",
    ),
)

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
    what: str, module: str, change: tuple[str, str], on_line: str | None = None, **more: Any
) -> HostileProgram:
    """A piece of the module is another one in its twin; some read finds what was written over."""
    about = {"rule": "SYM203", "verdict": "always-invalid", **more}
    return HostileProgram(what=what, module=module, twin=module.replace(*change), on_line=on_line, **about)


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


_TOO_SMALL = f"""{_COPIES}    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        storage = {storage("64")}
        z = Module.helper(storage, x)
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


PROGRAMS: tuple[HostileProgram, ...] = (
    _changed(
        "a callee places n floats on a storage of 64 bytes that it is handed",
        _TOO_SMALL,
        (storage("64"), storage("m * 4")),
        "t = R.memory.alloc_tensor",
        rule="SYM101",
        verdict="runtime-check",
        counterexample={"m": 17},
    ),
    _changed(
        "a storage comes out of a tuple, and goes into another one, to be written on",
        _TUPLE,
        ("s = opened[0]", "s = opened[2]"),
        "Module.ones(t)",
        shows=_told([floats(16) + 2], [[3.0] * 16], floats(16)),
    ),
    HostileProgram(
        what="each call of a recursion writes where its caller keeps what it reads afterwards",
        module=_RECURSION,
        twin=_RECURSION_TWIN,
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.copy(x, t)",
        also=frozenset({"SYM904"}),
    ),
    HostileProgram(
        what="the sixth call of a recursion writes where the first one keeps what it reads afterwards",
        module=_DEEP,
        twin=_DEEP_TWIN,
        rule="SYM904",
        severity="warning",
    ),
    _changed(
        "a packed function is given a storage, and may write anywhere on it",
        _OPAQUE,
        ('"library.scribble", storage', '"library.scribble", spare'),
        verdict=None,
        rule="SYM904",
        severity="warning",
    ),
    _changed(
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
)

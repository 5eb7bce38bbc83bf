"""Arenas whose tensors are views that take turns with the same bytes."""

from __future__ import annotations

from tests.hostile.machine import Machine, depends_on_storages, floats, gives
from tests.hostile.program import HostileProgram

_HEAD = """@I.ir_module
class Module:
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        source = T.match_buffer(a, (n,), "float32")
        out = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            out[i] = source[i] + source[i]

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        cls = Module
        s = R.memory.alloc_storage(R.shape([n * 256]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        arena = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n * 256]), R.dtype("uint8"))
        t = R.memory.alloc_storage(R.shape([n * 4]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        out = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([n]), R.dtype("float32"))
"""


def _view(name: str, offset: str, extent: str = "n") -> str:
    """A view of floats, at offset zero of what it is handed on as."""
    view = f'R.memory.view(arena, R.shape([{extent}]), R.dtype("float32"), R.prim_value({offset}))'
    return f"{name}_view = {view}\n{name} = R.memory.ensure_zero_offset({name}_view)"


def _main(*lines: str) -> str:
    inside = "\n".join(lines).splitlines()
    return _HEAD + "".join(f"        {line}\n" for line in (*inside, "return out"))


def _double(source: str, out: str) -> str:
    return f"_{out} = cls.double({source}, {out})"


_FIRST = (_view("a", "0"), _double("x", "a"), _view("b", "n * 64"), _double("a", "b"))
_THIRD = (_view("c", "n * 128"), _double("b", "c"), _view("d", "n * 192"))


def _unwritten(bad: Machine, twin: Machine) -> bool:
    return depends_on_storages(bad, floats(16)) and gives(twin, 32 * floats(16), floats(16))


def _stale(bad: Machine, twin: Machine) -> bool:
    return not gives(bad, 8 * floats(16), floats(16)) and gives(twin, 8 * floats(16), floats(16))


_PARTS = """@I.ir_module
class Module:
    @T.prim_func
    def copy(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        for i in range(64):
            b[i] = a[i]

    @T.prim_func
    def fill(a: T.Buffer((8,), "float32")):
        for i in range(8):
            a[i] = T.float32(7)

    @R.function(pure=False)
    def clear(whole: R.Tensor((64,), "float32")) -> R.Tensor((8,), "float32"):
        cls = Module
        view = R.memory.view(whole, R.shape([8]), R.dtype("float32"), R.prim_value(OFFSET))
        part = R.memory.ensure_zero_offset(view)
        _ = cls.fill(part)
        return part

    @R.function(pure=False)
    def main(x: R.Tensor((64,), "float32")) -> R.Tensor((64,), "float32"):
        cls = Module
        y = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0))
        _0 = cls.copy(x, y)
INSIDE
        return y
"""
_BY_CALLEE = '_1: R.Tensor((8,), "float32") = cls.clear(y)'
_BY_TUPLE = """view = R.memory.view(y, R.shape([8]), R.dtype("float32"), R.prim_value(OFFSET))
part = R.memory.ensure_zero_offset(view)
parts = (part, y)
first = parts[0]
_1 = cls.fill(first)"""


def _parts(inside: str, offset: int) -> str:
    lines = "\n".join(f"        {line}" for line in inside.splitlines())
    clear = 64 if inside == _BY_TUPLE else offset
    return _PARTS.replace("INSIDE", lines.replace("OFFSET", str(offset))).replace("OFFSET", str(clear))


def _cleared(bad: Machine, twin: Machine) -> bool:
    right = floats(64)
    right[16:24] = 7
    return gives(bad, floats(64), floats(64)) and gives(twin, right, floats(64))


def _of_a_copy(what: str, inside: str) -> HostileProgram:
    return HostileProgram(
        what=what,
        module=_parts(inside, 32),
        twin=_parts(inside, 64),
        rule="SYM110",
        on_line="ensure_zero_offset(view)",
        shows=_cleared,
    )


PROGRAMS: tuple[HostileProgram, ...] = (
    HostileProgram(
        what="three views of an arena are written, the fourth is only read",
        module=_main(*_FIRST, *_THIRD, _double("d", "out")),
        twin=_main(*_FIRST, *_THIRD, _double("c", "d"), _double("d", "out")),
        rule="SYM208",
        on_line="cls.double(d, out)",
        shows=_unwritten,
    ),
    HostileProgram(
        what="a view finds what one left there that is over: the call that writes it is missing",
        module=_main(*_FIRST, _view("c", "0"), _double("c", "out")),
        twin=_main(*_FIRST, _view("c", "0"), _double("b", "c"), _double("b", "out")),
        rule="SYM208",
        severity="warning",
        on_line="cls.double(c, out)",
        shows=_stale,
    ),
    HostileProgram(
        what="half of the bytes that a second view reads were written through the first",
        module=_main(
            *(_view("f", "0"), _double("x", "f"), _view("g", "0", "n * 2"), _view("h", "n * 64", "n * 2")),
            *(_double("g", "h"), _view("k", "n * 64"), _double("k", "out")),
        ),
        twin=_main(_view("f", "0"), _double("x", "f"), _view("g", "0"), _double("g", "out")),
        rule="SYM208",
        on_line="cls.double(g, h)",
    ),
    _of_a_copy("a callee writes into a copy of what its caller reads", _BY_CALLEE),
    _of_a_copy("what is taken out of a tuple and written is a copy", _BY_TUPLE),
)

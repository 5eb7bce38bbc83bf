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


PROGRAMS: tuple[HostileProgram, ...] = (
    HostileProgram(
        name="fourth-view-not-written",
        what="three views of an arena are written, the fourth is only read",
        module=_main(*_FIRST, *_THIRD, _double("d", "out")),
        twin=_main(*_FIRST, *_THIRD, _double("c", "d"), _double("d", "out")),
        rule="SYM208",
        on_line="cls.double(d, out)",
        shows=_unwritten,
    ),
    HostileProgram(
        name="left-by-another-view",
        what="a view finds what one left there that is over: the call that writes it is missing",
        module=_main(*_FIRST, _view("c", "0"), _double("c", "out")),
        twin=_main(*_FIRST, _view("c", "0"), _double("b", "c"), _double("b", "out")),
        rule="SYM208",
        severity="warning",
        on_line="cls.double(c, out)",
        shows=_stale,
    ),
    HostileProgram(
        name="half-written-through-a-view",
        what="half of the bytes that a second view reads were written through the first",
        module=_main(
            *(_view("f", "0"), _double("x", "f"), _view("g", "0", "n * 2"), _view("h", "n * 64", "n * 2")),
            *(_double("g", "h"), _view("k", "n * 64"), _double("k", "out")),
        ),
        twin=_main(_view("f", "0"), _double("x", "f"), _view("g", "0"), _double("g", "out")),
        rule="SYM208",
        on_line="cls.double(g, h)",
    ),
)

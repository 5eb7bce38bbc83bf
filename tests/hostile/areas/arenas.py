"""Arenas whose tensors are views that take turns with the same bytes."""

from __future__ import annotations

from tests.hostile.machine import Machine, depends_on_storages, differs, floats, gives
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import VECTOR, N, function, kernel, module, storage, tensor, view


def _view(name: str, offset: str, extent: str = "n") -> str:
    """A view of floats, at offset zero of what it is handed on as."""
    placed = view("arena", extent, offset)
    return f"{name}_view = {placed}\n{name} = R.memory.ensure_zero_offset({name}_view)"


def _main(*lines: str) -> str:
    return module(
        kernel("double", VECTOR, "    b[i] = a[i] + a[i]", a="n", b="n"),
        function(
            f"x: {N}",
            *(
                "cls = Module",
                f"s = {storage('n * 256')}",
                f"arena = {tensor('s', 'n * 256', dtype='uint8')}",
            ),
            *(f"t = {storage('n * 4')}", f"out = {tensor('t', 'n')}", *lines, "return out"),
            result=N,
        ),
    )


def _double(source: str, out: str) -> str:
    return f"_{out} = cls.double({source}, {out})"


_FIRST = (_view("a", "0"), _double("x", "a"), _view("b", "n * 64"), _double("a", "b"))
_THIRD = (_view("c", "n * 128"), _double("b", "c"), _view("d", "n * 192"))


def _unwritten(bad: Machine, twin: Machine) -> bool:
    return depends_on_storages(bad, floats(16)) and gives(twin, 32 * floats(16), floats(16))


def _part(whole: str, offset: str) -> str:
    """Eight floats of a tensor of 64, at offset zero: a copy of them, if they do not begin at 64 bytes."""
    return f"view = {view(whole, '8', offset)}\npart = R.memory.ensure_zero_offset(view)"


def _parts(offset: str, *lines: str) -> str:
    """x is copied to y, and eight floats of y are written through a part of it."""
    whole, eight = 'R.Tensor((64,), "float32")', 'R.Tensor((8,), "float32")'
    return module(
        kernel("copy", "for i in range(64):", "    b[i] = a[i]", a="64", b="64"),
        kernel("fill", "for i in range(8):", "    a[i] = T.float32(7)", a="8"),
        function(
            f"whole: {whole}",
            *("cls = Module", _part("whole", offset), "_ = cls.fill(part)", "return part"),
            result=eight,
            name="clear",
        ),
        function(
            f"x: {whole}",
            "cls = Module",
            'y = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0))',
            *("_0 = cls.copy(x, y)", *lines, "return y"),
            result=whole,
        ),
    )


def _of_a_copy(what: str, text: str) -> HostileProgram:
    right = floats(64)
    right[16:24] = 7
    return hostile(
        what,
        "SYM110",
        text,
        on_line="ensure_zero_offset(view)",
        shows=lambda bad, twin: gives(bad, floats(64), floats(64)) and gives(twin, right, floats(64)),
    )


PROGRAMS: tuple[HostileProgram, ...] = (
    hostile(
        "three views of an arena are written, the fourth is only read",
        "SYM208",
        _main(*_FIRST, *_THIRD, f"<<|{_double('c', 'd')}\n>>{_double('d', 'out')}"),
        on_line="cls.double(d, out)",
        shows=_unwritten,
    ),
    hostile(
        "a view finds what one left there that is over: the call that writes it is missing",
        "SYM208",
        _main(*_FIRST, _view("c", "0"), f"<<|{_double('b', 'c')}\n>>{_double('<<c|b>>', 'out')}"),
        severity="warning",
        on_line="cls.double(c, out)",
        shows=differs(8 * floats(16), 8 * floats(16), floats(16)),
    ),
    hostile(
        "half of the bytes that a second view reads were written through the first",
        "SYM208",
        _main(
            *(_view("f", "0"), _double("x", "f"), _view("g", "0", "n<< * 2|>>")),
            f"<<{_view('h', 'n * 64', 'n * 2')}\n{_double('g', 'h')}\n{_view('k', 'n * 64')}\n|>>"
            + _double("<<k|g>>", "out"),
        ),
        on_line="cls.double(g, h)",
    ),
    _of_a_copy(
        "a callee writes into a copy of what its caller reads",
        _parts("<<32|64>>", '_1: R.Tensor((8,), "float32") = cls.clear(y)'),
    ),
    _of_a_copy(
        "what is taken out of a tuple and written is a copy",
        _parts(
            "64", _part("y", "<<32|64>>"), "parts = (part, y)", "first = parts[0]", "_1 = cls.fill(first)"
        ),
    ),
)

"""Tensors that lose their bytes to another, and are written anew in parts before they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.hostile.machine import Array, Machine, floats, gives
from tests.hostile.program import HostileProgram


def _kernel(name: str, shape: str, *lines: str, parameters: str = "b") -> str:
    """A kernel on tensors of one shape, at any offset."""
    heads = ", ".join(f"{one}_: T.handle" for one in parameters)
    buffers = [
        f'{one} = T.match_buffer({one}_, ({shape}), "float32", elem_offset=T.int64(), offset_factor=1)'
        for one in parameters
    ]
    sizes = [f"{size} = T.int64()" for size in "nm" if size in shape]
    body = "".join(f"        {line}\n" for line in (*sizes, *buffers, *lines))
    return f"\n    @T.prim_func\n    def {name}({heads}):\n{body}"


def _stores(name: str, passes: str, index: str, value: int) -> str:
    return _kernel(name, "n,", f"for i in range({passes}):", f"    b[{index}] = T.float32({value})")


_KERNELS = "".join(
    (
        _kernel("copy", "n,", "for i in range(n):", "    b[i] = a[i]", parameters="ab"),
        _stores("ones", "n", "i", 1),
        _stores("low", "n // 2", "i", 5),
        _stores("high", "(n + 1) // 2", "n // 2 + i", 6),
        _stores("even", "(n + 1) // 2", "2 * i", 2),
        _stores("odd", "n // 2", "2 * i + 1", 3),
        _stores("back", "n - 1", "n - 1 - i", 4),
        _kernel(
            "sums",
            "n,",
            *("for i in range(n):", "    b[i] = T.float32(0)", "    for k in range(n):"),
            *("        b[i] = b[i] + T.float32(1)", "for i in range(n):", "    b[i] = b[i] * T.float32(2)"),
        ),
        _kernel("more", "n,", "for i, k in T.grid(n, n):", "    b[i] = b[i] + T.float32(1)"),
        _kernel(
            "both",
            "n,",
            *("for i in range(n // 2):", "    b[i] = T.float32(5)"),
            *("for i in range((n + 1) // 2):", "    b[n // 2 + i] = T.float32(6)"),
        ),
        _kernel("copy2", "n, m", "for i, j in T.grid(n, m):", "    b[i, j] = a[i, j]", parameters="ab"),
        _kernel("left", "n, m", "for i, j in T.grid(n, m // 2):", "    b[i, j] = T.float32(5)"),
        _kernel(
            "right", "n, m", "for i, j in T.grid(n, (m + 1) // 2):", "    b[i, m // 2 + j] = T.float32(6)"
        ),
        _kernel(
            "left_of",
            "n, m",
            *("for i, j in T.grid(n, m):", "    b[i, j] = T.float32(0)"),
            *("for i, j in T.grid(n, m // 2):", "    b[i, j] = a[i, j]"),
            parameters="ab",
        ),
    )
)
_BYTES = """
    @T.prim_func
    def clear(b_: T.handle):
        n = T.int64()
        b = T.match_buffer(b_, (n,), "uint8", elem_offset=T.int64(), offset_factor=1)
        for i in range(n):
            b[i] = T.uint8(0)
"""
_STORAGE = "R.memory.alloc_storage(R.shape([{}]), R.prim_value(0), R.str('global'), R.dtype('uint8'))"


def _tensor(shape: str, offset: str = "0", dtype: str = "float32") -> str:
    return f"R.memory.alloc_tensor(s, R.prim_value({offset}), R.shape([{shape}]), R.dtype('{dtype}'))"


def _view(source: str, shape: str, offset: str = "0", dtype: str = "float32") -> str:
    return f"R.memory.view({source}, R.shape([{shape}]), R.dtype('{dtype}'), R.prim_value({offset}))"


_OUT = "w = R.builtin.alloc_tensor(R.shape([{}]), R.dtype('float32'), R.prim_value(0), R.str('global'))"


def _main(shape: str, lines: tuple[str, ...], more: str = "") -> str:
    """A function on `x` of one shape, whose storage `s` is large enough."""
    kind = f"R.Tensor(({', '.join(f'{size!r}' if size.isalpha() else size for size in shape.split(', '))},)"
    head = (
        f"\n    @R.function(pure=False)\n    def main(x: {kind}, 'float32'){more}) -> {kind}, 'float32'):\n"
    )
    sizes = [f"{size} = T.int64()" for size in shape.split(", ") if size.isalpha()]
    nbytes = f"{shape.replace(', ', ' * ')} * 16 + 256"
    body = (*sizes, "cls = Module", f"s = {_STORAGE.format(nbytes)}", *lines, "return w")
    module = "@I.ir_module\nclass Module:" + _KERNELS + _BYTES
    return module + head + "".join(f"        {line}\n" for line in body)


def _overwritten(*steps: str, last: str = "y", first: str = "0", more: str = "") -> str:
    """x is copied to y, ones to z at the same place; then some steps, and `last` is copied to the result."""
    lines = (f"y = {_tensor('n')}", "cls.copy(x, y)", f"z = {_tensor('n', first)}", "cls.ones(z)")
    return _main("n", (*lines, *steps, _OUT.format("n"), f"cls.copy({last}, w)"), more)


def _matrix(*steps: str, reads: str = "copy2") -> str:
    """The same with two dimensions; `reads` is the kernel that reads y."""
    lines = (f"y = {_tensor('n, m')}", "cls.copy2(x, y)", f"z = {_tensor('n, m')}")
    return _main("n, m", (*lines, *steps, _OUT.format("n, m"), f"cls.{reads}(y, w)"))


_X = floats(7) + 10
_HALVES: Array = np.where(np.arange(7) < 3, 5, 6).astype(np.float32)
_LOW: Array = np.where(np.arange(7) < 3, 5, _X).astype(np.float32)
_TURNS: Array = np.where(np.arange(7) % 2 == 0, 2, 3).astype(np.float32)


def _shown(meant: Any, given: Any, *arguments: Any) -> Callable[[Machine, Machine], bool]:
    """The program does not give what is meant, its twin does."""

    def shows(bad: Machine, twin: Machine) -> bool:
        return not gives(bad, meant, *arguments) and gives(twin, given, *arguments)

    return shows


def _program(
    what: str, pair: tuple[str, str], meant: Any, given: Any, *arguments: Any, **more: Any
) -> HostileProgram:
    shows = _shown(meant, given, *(arguments or (_X,)))
    return HostileProgram(
        what=what, module=pair[0], twin=pair[1], **{"rule": "SYM203", "shows": shows, **more}
    )


_IF = (
    "if c:",
    "    cls.{}(y)",
    "    r = R.add(x, x)",
    "else:",
    "    cls.{}(y)",
    "    r = R.multiply(x, x)",
    "",
)
_FLAG = ", c: R.Tensor((), 'bool')"
_GRID, _SIXES = floats(3, 4) + 10, np.full((3, 4), 6, np.float32)
_SPLIT: Array = np.where(np.arange(4) < 2, 5, _SIXES).astype(np.float32)

PROGRAMS: tuple[HostileProgram, ...] = (
    _program(
        "the lower half is written anew, which at n = 1 is none; two stores of the twin's kernel write both",
        (_overwritten("cls.low(y)"), _overwritten("cls.both(y)")),
        _LOW,
        _HALVES,
        verdict="always-invalid",
    ),
    _program(
        "the right columns are written anew; the twin writes the left ones as well",
        (
            _matrix("cls.left(z)", "cls.right(y)"),
            _matrix("cls.left(z)", "cls.right(z)", "cls.right(y)", "cls.left(y)"),
        ),
        np.where(np.arange(4) < 2, _GRID, 6),
        _SPLIT,
        _GRID,
    ),
    _program(
        "the left columns are overwritten, which are read; in the twin it is the right ones",
        (_matrix("cls.left(z)", reads="left_of"), _matrix("cls.right(z)", reads="left_of")),
        np.where(np.arange(4) < 2, _GRID, 0),
        np.where(np.arange(4) < 2, _GRID, 0),
        _GRID,
    ),
    _program(
        "a matrix is written anew through a view of its rows less the first; the twin's has all of them",
        (
            _main(
                "n",
                (
                    *(f"y = {_tensor('n, 4')}", f"z = {_tensor('n')}", f"v = {_view('y', 'n * 4')}"),
                    *(f"a = {_view('v', 'n')}", "cls.copy(x, a)", "cls.ones(v)", "cls.ones(z)"),
                    f"u = {_view('y', 'n - 1, 4', '16')}",
                    *("cls.left(u)", "cls.right(u)", _OUT.format("n"), "cls.copy(a, w)"),
                ),
            ),
            _main(
                "n",
                (
                    *(f"y = {_tensor('n, 4')}", f"z = {_tensor('n')}", f"v = {_view('y', 'n * 4')}"),
                    *(f"a = {_view('v', 'n')}", "cls.copy(x, a)", "cls.ones(v)", "cls.ones(z)"),
                    f"u = {_view('y', 'n, 4')}",
                    *("cls.left(u)", "cls.right(u)", _OUT.format("n"), "cls.copy(a, w)"),
                ),
            ),
        ),
        None,
        None,
        shows=None,
    ),
    _program(
        "a view of bytes writes the first half anew; the twin's has all bytes",
        (
            _overwritten(f"v = {_view('y', 'n // 2 * 4', dtype='uint8')}", "cls.clear(v)"),
            _overwritten(f"v = {_view('y', 'n * 4', dtype='uint8')}", "cls.clear(v)"),
        ),
        np.where(np.arange(7) < 3, 0, _X),
        np.zeros(7, np.float32),
        verdict="always-invalid",
    ),
    _program(
        "one side of an If writes all anew, the other one half; in the twin both write all",
        (
            _overwritten(*(line.format("low") for line in _IF), "cls.odd(y)", more=_FLAG),
            _overwritten(*(line.format("even") for line in _IF), "cls.odd(y)", more=_FLAG),
        ),
        np.where(np.arange(7) % 2, 3, _LOW),
        _TURNS,
        _X,
        np.array(True),
        counterexample={"n": 1},
    ),
    _program(
        "a view of an arena is overwritten through another, which may be meant; in the twin it is over",
        (
            _main(
                "n",
                (
                    *(f"y = {_tensor('n * 8', dtype='uint8')}", f"v = {_view('y', 'n')}", "cls.copy(x, v)"),
                    *(f"u = {_view('y', 'n')}", "cls.even(u)", _OUT.format("n"), "cls.copy(v, w)"),
                ),
            ),
            _main(
                "n",
                (
                    *(f"y = {_tensor('n * 8', dtype='uint8')}", f"v = {_view('y', 'n')}", "cls.copy(x, v)"),
                    *(f"u = {_view('y', 'n')}", "cls.copy(v, u)", _OUT.format("n"), "cls.copy(u, w)"),
                ),
            ).replace("cls.copy(v, u)", "cls.both(u)"),
        ),
        None,
        None,
        severity="warning",
        shows=None,
    ),
)

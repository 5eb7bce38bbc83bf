"""Tensors that lose their bytes to another, and are written anew in parts before they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hostile.machine import Array, differs, floats
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import FLAG, VECTOR, N, fresh, function, kernel, module, storage, tensor, view


def _on(name: str, *lines: str, **shapes: str) -> str:
    """A kernel on tensors that may begin at any element."""
    return kernel(name, *lines, anywhere="ab", factor="1", **shapes)


def _stores(name: str, passes: str, index: str, value: int) -> str:
    return _on(name, f"for i in range({passes}):", f"    b[{index}] = T.float32({value})", b="n")


_GRID = "for i, j in T.grid(n, m):"
_KERNELS = "".join(
    (
        _on("copy", VECTOR, "    b[i] = a[i]", a="n", b="n"),
        _stores("ones", "n", "i", 1),
        _stores("low", "n // 2", "i", 5),
        _stores("even", "(n + 1) // 2", "2 * i", 2),
        _stores("odd", "n // 2", "2 * i + 1", 3),
        _on(
            "both",
            *("for i in range(n // 2):", "    b[i] = T.float32(5)"),
            *("for i in range((n + 1) // 2):", "    b[n // 2 + i] = T.float32(6)"),
            b="n",
        ),
        _on("copy2", _GRID, "    b[i, j] = a[i, j]", a="n, m", b="n, m"),
        _on("left", "for i, j in T.grid(n, m // 2):", "    b[i, j] = T.float32(5)", b="n, m"),
        _on("right", "for i, j in T.grid(n, (m + 1) // 2):", "    b[i, m // 2 + j] = T.float32(6)", b="n, m"),
        _on(
            "left_of",
            *(_GRID, "    b[i, j] = T.float32(0)"),
            *("for i, j in T.grid(n, m // 2):", "    b[i, j] = a[i, j]"),
            a="n, m",
            b="n, m",
        ),
        kernel("clear", VECTOR, "    b[i] = T.uint8(0)", b="n", dtype="uint8", anywhere="b", factor="1"),
    )
)


def _main(kind: str, shape: str, *lines: str, last: str, more: str = "") -> str:
    """A function on `x`, whose storage `s` is large enough; its last line copies something to the result."""
    nbytes = f"{shape.replace(', ', ' * ')} * 16 + 256"
    body = ("cls = Module", f"s = {storage(nbytes)}", *lines, f"w = {fresh(shape)}", last, "return w")
    return module(_KERNELS, function(f"x: {kind}{more}", *body, result=kind))


def _overwritten(*steps: str, more: str = "") -> str:
    """x is copied to y, ones to z at the same place; then some steps, and y is copied to the result."""
    lines = (f"y = {tensor('s', 'n')}", "cls.copy(x, y)", f"z = {tensor('s', 'n')}", "cls.ones(z)")
    return _main(N, "n", *lines, *steps, last="cls.copy(y, w)", more=more)


def _matrix(*steps: str, reads: str = "copy2") -> str:
    """The same with two dimensions; `reads` is the kernel that reads y."""
    lines = (f"y = {tensor('s', 'n, m')}", "cls.copy2(x, y)", f"z = {tensor('s', 'n, m')}")
    kind = 'R.Tensor(("n", "m"), "float32")'
    return _main(kind, "n, m", *lines, *steps, last=f"cls.{reads}(y, w)")


_X = floats(7) + 10
_HALVES: Array = np.where(np.arange(7) < 3, 5, 6).astype(np.float32)
_LOW: Array = np.where(np.arange(7) < 3, 5, _X).astype(np.float32)
_TURNS: Array = np.where(np.arange(7) % 2 == 0, 2, 3).astype(np.float32)
_GRID_OF_X, _SIXES = floats(3, 4) + 10, np.full((3, 4), 6, np.float32)
_SPLIT: Array = np.where(np.arange(4) < 2, 5, _SIXES).astype(np.float32)


def _program(
    what: str, text: str, meant: Any = None, given: Any = None, *arguments: Any, **more: Any
) -> HostileProgram:
    shows = None if meant is None else differs(meant, given, *(arguments or (_X,)))
    return hostile(what, "SYM203", text, shows=shows, **more)


PROGRAMS: tuple[HostileProgram, ...] = (
    _program(
        "the lower half is written anew, which at n = 1 is none; two stores of the twin's kernel write both",
        _overwritten("cls.<<low|both>>(y)"),
        _LOW,
        _HALVES,
        verdict="always-invalid",
    ),
    _program(
        "the right columns are written anew; the twin writes the left ones as well",
        _matrix("cls.left(z)", "<<|cls.right(z)\n>>cls.right(y)<<|\ncls.left(y)>>"),
        np.where(np.arange(4) < 2, _GRID_OF_X, 6),
        _SPLIT,
        _GRID_OF_X,
    ),
    _program(
        "the left columns are overwritten, which are read; in the twin it is the right ones",
        _matrix("cls.<<left|right>>(z)", reads="left_of"),
        np.where(np.arange(4) < 2, _GRID_OF_X, 0),
        np.where(np.arange(4) < 2, _GRID_OF_X, 0),
        _GRID_OF_X,
    ),
    _program(
        "a matrix is written anew through a view of its rows less the first; the twin's has all of them",
        _main(
            N,
            "n",
            *(f"y = {tensor('s', 'n, 4')}", f"z = {tensor('s', 'n')}", f"v = {view('y', 'n * 4')}"),
            *(f"a = {view('v', 'n')}", "cls.copy(x, a)", "cls.ones(v)", "cls.ones(z)"),
            f"u = {view('y', 'n<< - 1|>>, 4', '<<16|0>>')}",
            *("cls.left(u)", "cls.right(u)"),
            last="cls.copy(a, w)",
        ),
    ),
    _program(
        "a view of bytes writes the first half anew; the twin's has all bytes",
        _overwritten(f"v = {view('y', 'n<< // 2|>> * 4', dtype='uint8')}", "cls.clear(v)"),
        np.where(np.arange(7) < 3, 0, _X),
        np.zeros(7, np.float32),
        verdict="always-invalid",
    ),
    _program(
        "one side of an If writes all anew, the other one half; in the twin both write all",
        _overwritten(
            *("if c:", "    cls.<<low|even>>(y)", "    r = R.add(x, x)"),
            *("else:", "    cls.<<low|even>>(y)", "    r = R.multiply(x, x)", "cls.odd(y)"),
            more=f", c: {FLAG}",
        ),
        np.where(np.arange(7) % 2, 3, _LOW),
        _TURNS,
        _X,
        np.array(True),
        counterexample={"n": 1},
    ),
    _program(
        "a view of an arena is overwritten through another, which may be meant; in the twin it is over",
        _main(
            N,
            "n",
            *(f"y = {tensor('s', 'n * 8', dtype='uint8')}", f"v = {view('y', 'n')}", "cls.copy(x, v)"),
            *(f"u = {view('y', 'n')}", "cls.<<even|both>>(u)"),
            last="cls.copy(<<v|u>>, w)",
        ),
        severity="warning",
    ),
)

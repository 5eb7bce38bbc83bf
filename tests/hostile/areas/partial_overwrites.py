"""Overwrites of a part of a tensor, of which another part is read later, or the same one."""

from __future__ import annotations

import numpy as np

from tests.hostile.machine import Machine, floats, gives
from tests.hostile.program import HostileProgram

_MODULE = """\
@I.ir_module
class Module:
    @T.prim_func
    def fill(source: T.Buffer((4,), "float32"), out: T.Buffer((64,), "float32")):
        for i in range(64):
            out[i] = source[i % 4]

    @T.prim_func
    def double(source: T.Buffer((4,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = source[i % 4] * T.float32(2)

    @T.prim_func
    def part(source: T.Buffer((64,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = source[i + @FROM@]

    @T.prim_func
    def sum(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = a[i] + b[i]

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((16,), "float32"):
        storage = R.memory.alloc_storage(R.shape([256]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        whole = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([64]), R.dtype("float32"))
        Module.fill(x, whole)
        head = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([16]), R.dtype("float32"))
        Module.double(x, head)
        a = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.part(whole, a)
@MORE@        y = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.sum(a, head, y)
        return y
"""
_X = floats(4)
_MEANT = np.tile(_X * 3, 4)


def _module(first: int, more: str = "") -> str:
    return _MODULE.replace("@FROM@", str(first)).replace("@MORE@", more)


def _shows(one: Machine, other: Machine) -> bool:
    return not gives(one, _MEANT, _X) and gives(other, _MEANT, _X)


_AGAIN = """\
        b = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.copy(whole, b)
"""
_COPY = """\
    @T.prim_func
    def copy(source: T.Buffer((64,), "float32"), out: T.Buffer((64,), "float32")):
        for i in range(64):
            out[i] = source[i]

"""

PROGRAMS = (
    HostileProgram(
        what="elements 12 to 27 are read of a tensor whose first 16 were overwritten; the twin reads others",
        module=_module(12),
        twin=_module(16),
        rule="SYM203",
        verdict="always-invalid",
        shows=_shows,
    ),
    HostileProgram(
        what="the first reader takes what is left, the second one takes all; the twin has the first one only",
        module=_module(16, _AGAIN).replace("    @T.prim_func\n", _COPY + "    @T.prim_func\n", 1),
        twin=_module(48),
        rule="SYM203",
        verdict="always-invalid",
    ),
)

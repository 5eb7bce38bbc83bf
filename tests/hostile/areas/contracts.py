"""Contracts of mutation: constants, in-place operands, kernels that are handed one tensor twice."""

from __future__ import annotations

from tests.hostile.machine import floats, gives
from tests.hostile.program import HostileProgram

_OVERWRITTEN = """
@I.ir_module
class Module:
    @T.prim_func
    def fill(out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = T.float32(1)

    @T.prim_func
    def copy(source: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = source[i]

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        storage = R.memory.alloc_storage(R.shape([128]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([16]), R.dtype("float32"))
        b = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([16]), R.dtype("float32"))
        Module.copy(x, a)
        Module.fill(b)
        y = R.add(a, b)
        return y
"""

PROGRAMS: tuple[HostileProgram, ...] = (
    HostileProgram(
        name="overwritten-before-read",
        what="b takes the bytes of a, which is read once more",
        module=_OVERWRITTEN,
        twin=_OVERWRITTEN.replace("y = R.add(a, b)", "y = R.add(b, b)"),
        rule="SYM203",
        verdict="always-invalid",
        on_line="Module.fill(b)",
        shows=lambda bad, twin: (
            gives(bad, [[2.0] * 16], floats(16)) and gives(twin, [[2.0] * 16], floats(16))
        ),
    ),
)

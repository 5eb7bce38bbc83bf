"""Sizes that can be negative: nobody gets such memory, so that what lies there is right where it is there."""

from __future__ import annotations

from tests.hostile.machine import Machine, fails, floats, gives
from tests.hostile.program import HostileProgram

_TEXT = """@I.ir_module
class Module:
    @T.prim_func
    def ones(a: T.handle):
        n = T.int64()
        out = T.match_buffer(a, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            out[i, j] = T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32"), k: R.Prim("int64")) -> R.Tensor(dtype="float32", ndim=2):
        m = T.int64()
        s = R.memory.alloc_storage(R.shape([SIZE]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([EXTENT, 8]), R.dtype("float32"))
        _ = Module.ones(a)
        return a
"""


def _rows(size: str, extent: str) -> str:
    return _TEXT.replace("SIZE", size).replace("EXTENT", extent)


def _ends(bad: Machine, twin: Machine) -> bool:
    given = floats(2048), 2044
    return gives(twin, floats(2044, 8) * 0 + 1, *given) and fails(bad, "allocate", *given)


PROGRAMS: tuple[HostileProgram, ...] = tuple(
    HostileProgram(
        name=name,
        what=f"half of what {extent} rows take is reserved; the twin has twice as much",
        module=_rows(f"({extent}) * 16", extent),
        twin=_rows(f"({extent}) * 64", extent),
        rule="SYM101",
        on_line="alloc_tensor",
        shows=_ends,
    )
    for name, extent in (("scalar-that-may-be-negative", "k"), ("difference-that-may-be-negative", "m - 4"))
)

"""Kernels that leave their buffers, that ask for layouts no tensor has, and memory on no device."""

from __future__ import annotations

from tests.hostile.machine import Array, Machine, fails, floats, gives
from tests.hostile.program import HostileProgram

_SHARED = """@I.ir_module
class Module:
    @T.prim_func
    def keep(source: T.Buffer((16,), "float32"), out: T.handle):
        offset = T.int64()
        b = T.match_buffer(out, (16,), "float32", elem_offset=offset, offset_factor=16)
        for i in range(16):
            b[i] = source[i]

    @T.prim_func
    def join(first: T.Buffer((16,), "float32"), second: T.handle, out: T.Buffer((16,), "float32")):
        offset = T.int64()
        b = T.match_buffer(second, (16,), "float32", elem_offset=offset, offset_factor=16)
        for i in range(16):
            out[i] = first[i] + b[i]
"""
_MAIN = """
    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        s = R.memory.alloc_storage(R.shape([256]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        z = R.memory.alloc_tensor(s, R.prim_value(64), R.shape([16]), R.dtype("float32"))
        Module.keep(x, z)
        y = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"))
        {call}
        out = R.builtin.alloc_tensor(R.shape([16]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.join(y, z, out)
        return out
"""
_X = floats(16)


def _kernel(body: str, parameters: str = "", decorator: str = "@T.prim_func") -> str:
    """A kernel from `a` to `b`, both of 16 elements."""
    lines = "\n".join(f"        {line}" for line in body.strip().split("\n"))
    head = f'def work(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"){parameters}):'
    return f"\n    {decorator}\n    {head}\n{lines}\n"


def _arena(kernel: str, call: str = "Module.work(x, y)") -> str:
    """x is kept in z, which lies behind y; the kernel writes y; the result is their sum."""
    return _SHARED + kernel + _MAIN.format(call=call)


def _neighbour_changes(bad: Machine, twin: Machine) -> bool:
    return gives(twin, _X + _X, _X) and not gives(bad, _X + _X, _X)


def _stores(what: str, bad: str, twin: str, **more: object) -> HostileProgram:
    """A store that changes the neighbour, where the twin copies a to b."""
    return HostileProgram(
        what=what,
        module=_arena(_kernel(bad)),
        twin=_arena(_kernel(twin)),
        rule="SYM306",
        verdict="always-invalid",
        on_line="Module.work(x, y)",
        shows=_neighbour_changes,
        **more,  # type: ignore[arg-type]
    )


_COPY = "for i in range(16):\n    b[i] = a[i]"
_NINE = "T.if_then_else(i < 16, a[i % 16], T.float32(9))"
_TILES = """
for block, thread in T.grid(3, 8):
    if block * 8 + thread {test}:
        b[block * 8 + thread] = T.if_then_else(block * 8 + thread < 16, a[block * 8 + thread], T.float32(9))
"""
_NESTED = """
for i in range(24):
    if i >= {first}:
        if i >= {second}:
            continue
    b[i] = {value}
"""
_SCALAR = ", at: T.int64"


_MATRIX = """@I.ir_module
class Module:
    @T.prim_func
    def copy(source: T.handle, out: T.handle):
        a = T.match_buffer(source, (4, 4), "float32"{layout})
        b = T.match_buffer(out, (4, 4), "float32")
        for i, j in T.grid(4, 4):
            b[i, j] = a[i, j]

    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        y = R.call_tir(Module.copy, (x,), out_ty=R.Tensor((4, 4), "float32"))
        return y
"""
_PLACED = """@I.ir_module
class Module:
    I.module_global_infos({{"vdevice": [I.vdevice("llvm", 0, "global")]}})

    @T.prim_func
    def copy(source: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
        for i in range(16):
            out[i] = source[i]

    @R.function(pure=False)
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        s = R.memory.alloc_storage(R.shape([64]), R.prim_value({device}), R.str("{scope}"), R.dtype("uint8"))
        y = R.memory.alloc_tensor(
            s, R.prim_value(0), R.shape([16]), R.dtype("float32"), R.prim_value({device})
        )
        Module.copy(x, y)
        return y
"""


def _matrix(layout: str) -> str:
    return _MATRIX.format(layout=layout)


def _stops(bad: Machine, twin: Machine, words: str, x: Array) -> bool:
    return gives(twin, x, x) and fails(bad, words, x)


PROGRAMS: tuple[HostileProgram, ...] = (
    _stores(
        "the guard of the last tile lets one element too many through",
        _TILES.format(test="<= 16"),
        _TILES.format(test="< 16"),
    ),
    _stores(
        "the last vector of a copy reaches over the end",
        _COPY + "\nb[T.Ramp(12, 1, 8)] = a[T.Ramp(8, 1, 8)]",
        _COPY + "\nb[T.Ramp(8, 1, 8)] = a[T.Ramp(8, 1, 8)]",
    ),
    _stores(
        "the passes that are left out with `continue` begin too late",
        f"for i in range(24):\n    if i >= 20:\n        continue\n    b[i] = {_NINE}",
        "for i in range(24):\n    if i >= 16:\n        continue\n    b[i] = a[i]",
    ),
    _stores(
        "the loop is left too late",
        f"for i in range(24):\n    if i > 16:\n        break\n    b[i] = {_NINE}",
        "for i in range(24):\n    if i >= 16:\n        break\n    b[i] = a[i]",
    ),
    _stores(
        "the loop is left at a pass that comes too late",
        f"for i in range(24):\n    if i == 20:\n        break\n    b[i] = {_NINE}",
        "for i in range(24):\n    if i == 16:\n        break\n    b[i] = a[i]",
    ),
    _stores(
        "of the passes behind the end only some are left out",
        _NESTED.format(first=16, second=18, value=_NINE),
        _NESTED.format(first=8, second=16, value="a[i]"),
    ),
    _stores(
        "pairs are swapped by the lowest bit, also that behind the end",
        f"for i in range(17):\n    b[i ^ 1] = {_NINE}",
        "for i in range(16):\n    b[i ^ 1] = a[i ^ 1]",
    ),
    HostileProgram(
        what="the kernel is right for most scalars, and this call gives another",
        module=_arena(_kernel(_COPY + "\nb[at] = a[15]", _SCALAR), "Module.work(x, y, R.prim_value(16))"),
        twin=_arena(_kernel(_COPY + "\nb[at] = a[15]", _SCALAR), "Module.work(x, y, R.prim_value(15))"),
        rule="SYM306",
        verdict="always-invalid",
        on_line="Module.work(x, y",
        shows=_neighbour_changes,
    ),
    HostileProgram(
        what="whether a store is executed depends on data, and where it goes is outside",
        module=_arena(_kernel(_COPY + "\nif a[1] > T.float32(0):\n    b[16] = T.float32(9)")),
        twin=_arena(_kernel(_COPY + "\nif a[1] > T.float32(0):\n    b[15] = a[15]")),
        rule="SYM306",
        severity="warning",
        on_line="Module.work(x, y)",
        shows=_neighbour_changes,
    ),
    HostileProgram(
        what="the kernel asks for rows of eight elements, and a tensor of Relax has four",
        module=_matrix(", strides=(8, 1)"),
        twin=_matrix(", strides=(4, 1)"),
        rule="SYM308",
        verdict="always-invalid",
        on_line="Module.copy",
        shows=lambda bad, twin: _stops(bad, twin, "expected 8", floats(4, 4)),
    ),
    HostileProgram(
        what="the kernel asks for a tensor that begins four elements behind its pointer",
        module=_matrix(", elem_offset=4"),
        twin=_matrix(""),
        rule="SYM308",
        verdict="always-invalid",
        on_line="Module.copy",
        shows=lambda bad, twin: _stops(bad, twin, "expected 16", floats(4, 4)),
    ),
    HostileProgram(
        what="the scope of an accelerator, on a CPU",
        module=_PLACED.format(device=0, scope="global.vtcm"),
        twin=_PLACED.format(device=0, scope="global"),
        rule="SYM114",
        verdict="always-invalid",
        on_line="alloc_storage",
        shows=lambda bad, twin: _stops(bad, twin, "", _X),
    ),
    HostileProgram(
        what="the second device, and the module names one",
        module=_PLACED.format(device=1, scope="global"),
        twin=_PLACED.format(device=0, scope="global"),
        rule="SYM114",
        severity="warning",
        on_line="alloc_storage",
        shows=lambda bad, twin: _stops(bad, twin, "device index", _X),
    ),
)

"""Sizes that can be negative: nobody gets such memory, so that what lies there is right where it is there."""

from __future__ import annotations

from tests.hostile.any_length import COPY, MODULE, storage, tensor
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


def _placed(parameter: str, *lines: str, guard: str) -> str:
    """16 floats are copied to byte 64*k + 64 of a storage, and back, where `guard` holds for k."""
    body = [
        "k = T.int64()",
        *lines,
        f'_ = R.assert_op(R.prim_value({guard}), format="k")',
        f"s = {storage('4096')}",
        f"t = {tensor('s', offset='64*k + 64')}",
        "_1 = Module.copy(x, t)",
        "y = R.call_tir(Module.twice, (t,), out_ty=R.Tensor((16,), 'float32'))",
        "return y",
    ]
    head = f'    @R.function(pure=False)\n    def main(x: R.Tensor((16,), "float32"), {parameter}):\n'
    return MODULE + COPY + _TWICE + head + "".join(f"        {line}\n" for line in body)


_TWICE = """
    @T.prim_func
    def twice(source: T.handle, out: T.handle):
        k = T.int64()
        a = T.match_buffer(source, (k,), "float32", offset_factor=16)
        b = T.match_buffer(out, (k,), "float32", offset_factor=16)
        for i in range(k):
            b[i] = a[i] * T.float32(2)

"""
_SIGNED = {
    "number-in-a-tensor": (
        'number: R.Tensor((1,), "int64")',
        "told = R.tensor_to_shape(number)",
        "known = R.match_cast(told, R.Shape([k]))",
    ),
    "number-behind-names": (
        'number: R.Tensor((1,), "int64")',
        "told = R.tensor_to_shape(number)",
        "pair = (told, x)",
        "again = pair[0]",
        "known = R.match_cast(again, R.Shape([k]))",
    ),
    "shape-parameter": ('given: R.Shape(["k"])',),
}
_GUARDED = "T.And(k <= 62, k >= 0)"

PROGRAMS: tuple[HostileProgram, ...] = tuple(
    HostileProgram(
        what=f"half of what {extent} rows take is reserved; the twin has twice as much",
        module=_rows(f"({extent}) * 16", extent),
        twin=_rows(f"({extent}) * 64", extent),
        rule="SYM101",
        on_line="alloc_tensor",
        shows=_ends,
    )
    for extent in ("k", "m - 4")
)
PROGRAMS += tuple(
    HostileProgram(
        what=f"{kind}: it may be negative, and places a tensor in front of its storage; the twin checks that",
        module=_placed(*lines, guard="k <= 62"),
        twin=_placed(*lines, guard=_GUARDED),
        rule="SYM102",
        on_line="alloc_tensor",
        counterexample={"k": -2},
    )
    for kind, lines in _SIGNED.items()
)
PROGRAMS += (
    HostileProgram(
        what="the twin takes the number from the shape of a tensor, which is never negative",
        module=_placed(*_SIGNED["number-in-a-tensor"], guard="k <= 62"),
        twin=_placed(
            'number: R.Tensor(ndim=1, dtype="int64")',
            "told = R.shape_of(number)",
            "named = told",
            "known = R.match_cast(named, R.Shape([k]))",
            guard="k <= 62",
        ),
        rule="SYM102",
    ),
    HostileProgram(
        what="the twin is given a tensor of as many elements, which TVM compares",
        module=_placed(*_SIGNED["shape-parameter"], guard="k <= 62"),
        twin=_placed('given: R.Shape(["k"]), of: R.Tensor(("k",), "float32")', guard="k <= 62"),
        rule="SYM102",
    ),
)


def _halves(size: str) -> str:
    """m times n numbers of two bytes on a storage of `size` bytes."""
    kind = 'R.shape([m, n]), R.dtype("float16")'
    lines = ("m = T.int64()", "n = T.int64()", f"s = {storage(size)}")
    made = f"t = R.memory.alloc_tensor(s, R.prim_value(0), {kind})"
    head = '\n    @R.function(pure=False)\n    def main(given: R.Shape(["m", "n"])):\n'
    return MODULE + head + "".join(f"        {line}\n" for line in (*lines, made, "return t"))


PROGRAMS += (
    HostileProgram(
        what="numbers may be negative, two of them make a size; what is shown are plain ones all the same",
        module=_halves("m * n"),
        twin=_halves("m * n * 2"),
        rule="SYM101",
        on_line="alloc_tensor",
        counterexample={"m": 1, "n": 1},
    ),
)


def _sized(size: str) -> str:
    """n floats on a storage of `size` bytes."""
    lines = ("n = T.int64()", f"s = {storage(size)}", f"t = {tensor('s', 'n')}", "_ = Module.copy(x, t)")
    head = '    @R.function(pure=False)\n    def main(x: R.Tensor(("n",), "float32")):\n'
    return MODULE + COPY + "\n" + head + "".join(f"        {line}\n" for line in (*lines, "return x"))


PROGRAMS += tuple(
    HostileProgram(
        what=f"{kind}: a size without exact form: whether a tensor fits cannot be said, which is no note",
        module=_sized(size),
        twin=_sized("n * 4"),
        rule="SYM101",
        severity="warning",
        verdict="runtime-check",
        on_line="alloc_tensor",
    )
    for kind, size in {
        "power-of-two": "T.shift_left(T.int64(1), n)",
        "bits-of-a-size": "T.bitwise_and(n * 4, n * 8)",
        "size-by-floats": 'T.cast(T.pow(T.cast(n, "float32"), T.float32(2)), "int64")',
    }.items()
)

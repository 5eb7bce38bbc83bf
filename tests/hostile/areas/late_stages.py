"""Modules as VMShapeLower leaves them: sizes lie in a heap of numbers, and go wrong there."""

from __future__ import annotations

from collections.abc import Callable

from tests.hostile.machine import Machine, fails, floats, gives
from tests.hostile.program import HostileProgram

_TEXT = """@I.ir_module
class Module:
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        source = T.match_buffer(a, (n,), "float32")
        out = T.match_buffer(b, (n,), "float32", elem_offset=T.int64(), offset_factor=16)
        for i in range(n):
            out[i] = source[i] + source[i]

    @T.prim_func
    def triple(a: T.handle, b: T.handle):
        n = T.int64()
        source = T.match_buffer(a, (n,), "float32")
        out = T.match_buffer(b, (n,), "float32", elem_offset=T.int64(), offset_factor=16)
        for i in range(n):
            out[i] = source[i] * T.float32(3)

    @T.prim_func
    def add(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        left = T.match_buffer(a, (n,), "float32", elem_offset=T.int64(), offset_factor=16)
        right = T.match_buffer(b, (n,), "float32", elem_offset=T.int64(), offset_factor=16)
        out = T.match_buffer(c, (n,), "float32")
        for i in range(n):
            out[i] = left[i] + right[i]

    @T.prim_func
    def sizes(H: T.Buffer((T.int64(6),), "int64")):
        T.func_attr({"tirx.is_host_func": True})
        H[T.int64(2)] = (H[T.int64(0)] + T.int64(15)) // T.int64(16) * T.int64(64)
        H[T.int64(3)] = H[T.int64(2)] + H[T.int64(0)] * T.int64(4)
        H[T.int64(4)] = H[T.int64(0)] * T.int64(4)

    @T.prim_func
    def middle(n: T.int64) -> T.int64:
        T.func_attr({"tirx.is_host_func": True})
        return (n + T.int64(15)) // T.int64(16) * T.int64(64)

    @R.function(pure=False)
    def main(
        x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")
    ) -> R.Tensor(dtype="float32", ndim=1):
        cls = Module
        heap = R.call_builtin_with_ctx(
            "vm.builtin.alloc_shape_heap", (R.prim_value(6),), ty_args=(R.Tensor(dtype="int64", ndim=1),)
        )
        _1 = R.call_packed("vm.builtin.match_shape", x, heap, 1, 1, 0, R.str(""), ty_args=(R.Tuple,))
        _2 = R.call_packed("vm.builtin.match_shape", y, heap, 1, 1, 1, R.str(""), ty_args=(R.Tuple,))
        _3 = cls.sizes(heap)
        size = R.call_packed("vm.builtin.make_shape", heap, 1, 1, 3, ty_args=(R.Shape(ndim=1),))
        s = R.vm.alloc_storage(size, R.prim_value(0), R.dtype("uint8"), R.str("global"))
        one = R.call_packed("vm.builtin.make_shape", heap, 1, 1, 0, ty_args=(R.Shape(ndim=1),))
        a = R.vm.alloc_tensor(s, R.prim_value(0), one, R.dtype("float32"))
        _4 = cls.double(x, a)
        at: R.Prim("int64") = R.call_packed(
            "vm.builtin.make_prim_value", heap, 1, 2, ty_args=(R.Prim("int64"),)
        )
        b = R.vm.alloc_tensor(s, at, one, R.dtype("float32"))
        _5 = cls.triple(x, b)
        bytes = R.call_packed("vm.builtin.make_shape", heap, 1, 1, 4, ty_args=(R.Shape(ndim=1),))
        t = R.vm.alloc_storage(bytes, R.prim_value(0), R.dtype("uint8"), R.str("global"))
        c = R.vm.alloc_tensor(t, R.prim_value(0), one, R.dtype("float32"))
        _6 = cls.add(a, b, c)
        return c
"""


def _with(*changes: tuple[str, str]) -> str:
    """The module with each text replaced by another; each must be there once."""
    text = _TEXT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _packed(var: str, name: str, arguments: str, result: str = "R.Tuple") -> str:
    return f'        {var} = R.call_packed("vm.builtin.{name}", {arguments}, ty_args=({result},))\n'


_MATCH_X = _packed("_1", "match_shape", 'x, heap, 1, 1, 0, R.str("")')
_MATCH_Y = _packed("_2", "match_shape", 'y, heap, 1, 1, 1, R.str("")')
_SIZES = "        _3 = cls.sizes(heap)\n"
_OFFSET = '"vm.builtin.make_prim_value", heap, 1, 2, ty_args=(R.Prim("int64"),)\n        )'
_CALLED = '"vm.builtin.make_prim_value", heap, 1, 0, ty_args=(R.Prim("int64"),)\n        )\n'
_COMPUTED = (
    (_OFFSET, f'{_CALLED}        behind: R.Prim("int64") = cls.middle(at)'),
    ("alloc_tensor(s, at,", "alloc_tensor(s, behind,"),
)
_END = "        H[T.int64(4)] = H[T.int64(0)] * T.int64(4)\n"
_OF_M = ("cls.double(x, a)", "cls.double(y, a)")
_FLAG = ('y: R.Tensor(("m",), "float32")', 'y: R.Tensor(("m",), "float32"), flag: R.Tensor((), "bool")')
_CAST = """        n = T.int64()
        z = R.match_cast(y, R.Tensor((n,), "float32"))
        _4 = cls.double(z, a)"""
_CHOSEN = "        if flag:\n            u = cls.sizes(heap)\n        else:\n            u = {}\n"


def _wrong(bad: Machine, twin: Machine) -> bool:
    """The result is 2 * x + 3 * x, and something else where the two parts share memory."""
    given = floats(6), floats(2)
    return gives(twin, 5 * floats(6), *given) and not gives(bad, 5 * floats(6), *given)


def _stops(words: str, width: int = 2) -> Callable[[Machine, Machine], bool]:
    def shows(bad: Machine, twin: Machine) -> bool:
        twin.run(floats(6), floats(6))
        return fails(bad, words, floats(6), floats(width))

    return shows


PROGRAMS: tuple[HostileProgram, ...] = (
    HostileProgram(
        what="the function that computes slots counts the last tensor half",
        module=_with(("+ H[T.int64(0)] * T.int64(4)", "+ H[T.int64(0)] * T.int64(2)")),
        twin=_TEXT,
        rule="SYM101",
        on_line="b = R.vm.alloc_tensor",
        counterexample={"n": 1},
    ),
    HostileProgram(
        what="the size of the storage is taken from the slot that holds an offset",
        module=_with(("heap, 1, 1, 3, ty", "heap, 1, 1, 2, ty")),
        twin=_TEXT,
        rule="SYM101",
        on_line="b = R.vm.alloc_tensor",
    ),
    HostileProgram(
        what="the call that computes slots is missing",
        module=_with((_SIZES, "")),
        twin=_TEXT,
        rule="SYM208",
        on_line="make_shape",
    ),
    HostileProgram(
        what="slots are computed before what they are computed from is there",
        module=_with((_MATCH_X, _SIZES + _MATCH_X), ("\n" + _MATCH_Y + _SIZES, "\n" + _MATCH_Y)),
        twin=_TEXT,
        rule="SYM208",
        on_line="make_shape",
    ),
    HostileProgram(
        what="only one branch computes the slots",
        module=_with(
            _FLAG,
            (
                _SIZES,
                _CHOSEN.format("R.tuple()"),
            ),
        ),
        twin=_with(
            _FLAG,
            (
                _SIZES,
                _CHOSEN.format("cls.sizes(heap)"),
            ),
        ),
        rule="SYM904",
        severity="warning",
        on_line="make_shape",
    ),
    HostileProgram(
        what="the function that computes slots overwrites the one that it starts from",
        module=_with((_END, f"{_END}        H[T.int64(0)] = H[T.int64(0)] - T.int64(1)\n")),
        twin=_with((_END, f"{_END}        H[T.int64(5)] = H[T.int64(0)] - T.int64(1)\n")),
        rule="SYM303",
        on_line="cls.double",
        shows=_stops("Mismatched out.shape[0]"),
    ),
    HostileProgram(
        what="the function that computes the offset rounds down",
        module=_with(*_COMPUTED, ("return (n + T.int64(15)) // T.int64(16)", "return n // T.int64(16)")),
        twin=_with(*_COMPUTED),
        rule="SYM203",
        on_line="cls.triple",
        counterexample={"n": 1},
        shows=_wrong,
    ),
    HostileProgram(
        what="the heap has fewer slots than the function that computes them wants",
        module=_with(("(R.prim_value(6),)", "(R.prim_value(4),)")),
        twin=_TEXT,
        rule="SYM303",
        also=frozenset({"SYM307"}),
        on_line="cls.sizes",
        shows=_stops("Invalid H.shape[0]"),
    ),
    HostileProgram(
        what="an extent is put behind the last slot of the heap, into other memory",
        module=_with(("y, heap, 1, 1, 1", "y, heap, 1, 1, 6")),
        twin=_with(("y, heap, 1, 1, 1", "y, heap, 1, 1, 5")),
        rule="SYM306",
        on_line="match_shape",
    ),
    HostileProgram(
        what="an extent is taken from behind the last slot of the heap, which is other memory",
        module=_with(("heap, 1, 1, 4, ty", "heap, 1, 1, 6, ty")),
        twin=_TEXT,
        rule="SYM307",
        on_line="make_shape",
    ),
    HostileProgram(
        what="the call that would compare two extents stores one of them",
        module=_with(_OF_M),
        twin=_with(_OF_M, ("y, heap, 1, 1, 1", "y, heap, 1, 3, 0")),
        rule="SYM303",
        severity="warning",
        on_line="cls.double",
        shows=_stops("Mismatched out.shape[0]"),
    ),
    HostileProgram(
        what="behind VMShapeLower a match_cast compares nothing: what does is missing",
        module=_with(("        _4 = cls.double(x, a)", _CAST)),
        twin=_with(("        _4 = cls.double(x, a)", _CAST), ("y, heap, 1, 1, 1", "y, heap, 1, 3, 0")),
        rule="SYM303",
        severity="warning",
        on_line="cls.double",
        shows=_stops("Mismatched out.shape[0]"),
    ),
)

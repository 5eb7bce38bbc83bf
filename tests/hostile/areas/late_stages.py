"""Modules as VMShapeLower leaves them: sizes lie in a heap of numbers, and go wrong there."""

from __future__ import annotations

from typing import Any

from tests.hostile.machine import Machine, Shows, differs, fails, floats
from tests.hostile.program import HostileProgram, hostile
from tests.hostile.texts import VECTOR, kernel, module

_TEXT = module(
    kernel("double", VECTOR, "    b[i] = a[i] + a[i]", a="n", b="n", anywhere="b"),
    kernel("triple", VECTOR, "    b[i] = a[i] * T.float32(3)", a="n", b="n", anywhere="b"),
    kernel("add", VECTOR, "    c[i] = a[i] + b[i]", a="n", b="n", c="n", anywhere="ab"),
    """
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
""",
)


def _packed(var: str, name: str, arguments: str, result: str = "R.Tuple") -> str:
    return f'        {var} = R.call_packed("vm.builtin.{name}", {arguments}, ty_args=({result},))\n'


_MATCH_X = _packed("_1", "match_shape", 'x, heap, 1, 1, 0, R.str("")')
_MATCH_Y = _packed("_2", "match_shape", 'y, heap, 1, 1, 1, R.str("")')
_SIZES = "        _3 = cls.sizes(heap)\n"
_OFFSET = '"vm.builtin.make_prim_value", heap, 1, 2, ty_args=(R.Prim("int64"),)\n        )'
_CALLED = '"vm.builtin.make_prim_value", heap, 1, 0, ty_args=(R.Prim("int64"),)\n        )\n'
_END = "        H[T.int64(4)] = H[T.int64(0)] * T.int64(4)\n"
_FLAG = 'y: R.Tensor(("m",), "float32")'
_CAST = """        n = T.int64()
        z = R.match_cast(y, R.Tensor((n,), "float32"))
"""
_CHOSEN = "        if flag:\n            u = cls.sizes(heap)\n        else:\n            u = {}\n".format


def _stops(words: str) -> Shows:
    def shows(bad: Machine, twin: Machine) -> bool:
        twin.run(floats(6), floats(6))
        return fails(bad, words, floats(6), floats(2))

    return shows


def _late(what: str, rule: str, *changes: tuple[str, str], **more: Any) -> HostileProgram:
    """The module with each text replaced by another; each must be there once."""
    text = _TEXT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return hostile(what, rule, text, **more)


PROGRAMS: tuple[HostileProgram, ...] = (
    _late(
        "the function that computes slots counts the last tensor half",
        "SYM101",
        ("+ H[T.int64(0)] * T.int64(4)", "+ H[T.int64(0)] * T.int64(<<2|4>>)"),
        on_line="b = R.vm.alloc_tensor",
        counterexample={"n": 1},
    ),
    _late(
        "the size of the storage is taken from the slot that holds an offset",
        "SYM101",
        ("heap, 1, 1, 3, ty", "heap, 1, 1, <<2|3>>, ty"),
        on_line="b = R.vm.alloc_tensor",
    ),
    _late(
        "the call that computes slots is missing", "SYM208", (_SIZES, f"<<|{_SIZES}>>"), on_line="make_shape"
    ),
    _late(
        "slots are computed before what they are computed from is there",
        "SYM208",
        (_MATCH_X, f"<<{_SIZES}|>>{_MATCH_X}"),
        ("\n" + _MATCH_Y + _SIZES, f"\n{_MATCH_Y}<<|{_SIZES}>>"),
        on_line="make_shape",
    ),
    _late(
        "only one branch computes the slots",
        "SYM904",
        (_FLAG, _FLAG + ', flag: R.Tensor((), "bool")'),
        (_SIZES, _CHOSEN("<<R.tuple()|cls.sizes(heap)>>")),
        severity="warning",
        on_line="make_shape",
    ),
    _late(
        "the function that computes slots overwrites the one that it starts from",
        "SYM303",
        (_END, f"{_END}        H[T.int64(<<0|5>>)] = H[T.int64(0)] - T.int64(1)\n"),
        on_line="cls.double",
        shows=_stops("Mismatched b.shape[0]"),
    ),
    _late(
        "the function that computes the offset rounds down",
        "SYM203",
        (_OFFSET, f'{_CALLED}        behind: R.Prim("int64") = cls.middle(at)'),
        ("alloc_tensor(s, at,", "alloc_tensor(s, behind,"),
        ("return (n + T.int64(15)) // T.int64(16)", "return <<n|(n + T.int64(15))>> // T.int64(16)"),
        on_line="cls.triple",
        counterexample={"n": 1},
        shows=differs(5 * floats(6), 5 * floats(6), floats(6), floats(2)),
    ),
    _late(
        "the heap has fewer slots than the function that computes them wants",
        "SYM303",
        ("(R.prim_value(6),)", "(R.prim_value(<<4|6>>),)"),
        also=frozenset({"SYM307"}),
        on_line="cls.sizes",
        shows=_stops("Invalid H.shape[0]"),
    ),
    _late(
        "an extent is put behind the last slot of the heap, into other memory",
        "SYM306",
        ("y, heap, 1, 1, 1", "y, heap, 1, 1, <<6|5>>"),
        on_line="match_shape",
    ),
    _late(
        "an extent is taken from behind the last slot of the heap, which is other memory",
        "SYM307",
        ("heap, 1, 1, 4, ty", "heap, 1, 1, <<6|4>>, ty"),
        on_line="make_shape",
    ),
    _late(
        "the call that would compare two extents stores one of them",
        "SYM303",
        ("cls.double(x, a)", "cls.double(y, a)"),
        ("y, heap, 1, 1, 1", "y, heap, 1, <<1, 1|3, 0>>"),
        severity="warning",
        on_line="cls.double",
        shows=_stops("Mismatched b.shape[0]"),
    ),
    _late(
        "behind VMShapeLower a match_cast compares nothing: what does is missing",
        "SYM303",
        ("        _4 = cls.double(x, a)", f"{_CAST}        _4 = cls.double(z, a)"),
        ("y, heap, 1, 1, 1", "y, heap, 1, <<1, 1|3, 0>>"),
        severity="warning",
        on_line="cls.double",
        shows=_stops("Mismatched b.shape[0]"),
    ),
)

"""Modules that no planner makes: memory handed between functions, constants, in-place callees, recursion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import tvm
from tvm import relax
from tvm.script import from_source

from tests.hostile import texts

__all__ = ["DOUBLE", "HANDMADE", "MATRIX", "alloc", "constant_weights", "function", "module_of", "storage"]

MATRIX = 'R.Tensor(("n", 16), "float32")'


def kernel(name: str, store: str, *buffers: str, anywhere: bool = False) -> str:
    """A kernel over all elements of matrices of n rows, which may lie `anywhere` in their storages."""
    place = ", elem_offset=T.int64(), offset_factor=16" if anywhere else ""
    matched = "".join(f"        {one} = T.match_buffer({one}_, (n, T.int64(16)){place})\n" for one in buffers)
    return f"""
    @T.prim_func(private=True, s_tir=True)
    def {name}({", ".join(f"{one}_: T.handle" for one in buffers)}):
        n = T.int64()
{matched}        for i, j in T.grid(n, T.int64(16)):
            with T.sblock("{name}"):
                v, w = T.axis.remap("SS", [i, j])
                {store}
"""


def storage(name: str, nbytes: str = "n * 64") -> str:
    """A line that reserves bytes, by default those of one matrix."""
    return f"{name} = {texts.storage(nbytes)}"


def alloc(name: str, on: str, offset: str = "0") -> str:
    """A line that places a matrix on a storage."""
    return f"{name} = {texts.tensor(on, 'n, 16', offset)}"


def function(parameters: str, *lines: str, result: str = MATRIX, private: str = "") -> str:
    """A function of the module, which it calls `cls`; `private`: its name, where no one else calls it."""
    how = "private=True, pure=False" if private else "pure=False"
    return texts.function(parameters, "cls = Module", *lines, result=result, name=private or "main", how=how)


def module_of(*parts: str) -> tvm.IRModule:
    """The module of these kernels and functions."""
    return from_source(texts.module(*parts))


_TWICE = "target[v, w] = source[v, w] * T.float32(2)"
DOUBLE = kernel("double", _TWICE, "source", "target", anywhere=True)


_FLAGS = f"c: {texts.FLAG}, d: {texts.FLAG}"
_PARTS: Mapping[str, tuple[str, ...]] = {
    # a callee places two tensors on a storage of its caller's, who then uses one half of it again
    "storage_handed_on": (
        DOUBLE,
        function(
            f"x: {MATRIX}, s: R.Object",
            *(alloc("a", "s"), alloc("b", "s", "n * 64")),
            *("_1 = cls.double(x, a)", "_2 = cls.double(a, b)", "return b"),
            private="place",
        ),
        function(
            f"x: {MATRIX}",
            *(storage("s", "n * 128"), storage("t"), "b = cls.place(x, s)"),
            *(alloc("c", "s"), alloc("d", "t"), "_1 = cls.double(b, c)", "_2 = cls.double(c, d)"),
            *("_3 = R.memory.kill_tensor(c)", "return d"),
        ),
    ),
    # a callee writes the tensor that it is handed; another doubles one in place
    "written_by_a_callee": (
        kernel("add", "c[v, w] = a[v, w] + b[v, w] * T.float32(3)", "a", "b", "c"),
        kernel("double", "a[v, w] = a[v, w] * T.float32(2)", "a"),
        function(
            f"x: {MATRIX}, y: {MATRIX}, out: {MATRIX}",
            *("_1 = cls.add(x, y, out)", "_2 = cls.double(out)", "return out"),
            private="fill",
        ),
        function(
            f"x: {MATRIX}, y: {MATRIX}",
            *(line for one, on in zip("abc", "stu", strict=True) for line in (storage(on), alloc(one, on))),
            *("_1 = cls.fill(x, y, a)", "_2 = cls.fill(a, x, b)", "_3 = cls.double(a)"),
            "_4 = cls.add(a, b, c)",
            *("_5 = R.memory.kill_tensor(a)", "_6 = R.memory.kill_tensor(b)", "return c"),
        ),
    ),
    # a function calls itself on the memory that it was handed, as often as its conditions say
    "recursion_in_place": (
        kernel("double", _TWICE, "source", "target"),
        function(
            f"x: {MATRIX}, out: {MATRIX}, {_FLAGS}",
            *("_1 = cls.double(x, out)", "if c:", f"    {storage('s')}", f"    {alloc('a', 's')}"),
            *("    _2 = cls.double(out, a)", '    r = cls.again(a, out, d, R.const(False, "bool"))'),
            *("else:", "    r = out", "return r"),
            private="again",
        ),
        function(
            f"x: {MATRIX}, {_FLAGS}",
            *(storage("s"), alloc("a", "s"), storage("t"), alloc("b", "t")),
            *("_1 = cls.again(x, a, c, d)", "_2 = cls.double(a, b)", "return b"),
        ),
    ),
    # a callee returns two tensors on one storage, which its caller returns with a third
    "two_results_of_a_callee": (
        DOUBLE,
        function(
            f"x: {MATRIX}",
            *(storage("s", "n * 128"), alloc("a", "s"), alloc("b", "s", "n * 64")),
            *("_1 = cls.double(x, a)", "_2 = cls.double(a, b)", "return (a, b)"),
            result=f"R.Tuple({MATRIX}, {MATRIX})",
            private="both",
        ),
        function(
            f"x: {MATRIX}",
            *("p = cls.both(x)", "a = p[0]", "b = p[1]"),
            *(storage("s"), alloc("c", "s"), storage("t"), alloc("d", "t")),
            *("_1 = cls.double(b, c)", "_2 = cls.double(a, d)", "return (a, c, d)"),
            result=f"R.Tuple({MATRIX}, {MATRIX}, {MATRIX})",
        ),
    ),
}
HANDMADE: Mapping[str, Callable[[], tvm.IRModule]] = {
    name: partial(module_of, *parts) for name, parts in _PARTS.items()
}
"""Modules with memory operations, behind KillAfterLastUse."""


def constant_weights() -> tvm.IRModule:
    """Two layers whose weights are constants; the second layer's sum lies where the first one's was."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 16], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for _ in range(3):
                weight = relax.const(rng.standard_normal((16, 16)).astype("float32"))
                bias = relax.const(rng.standard_normal(16).astype("float32"))
                value = builder.emit(relax.op.nn.relu(relax.op.add(relax.op.matmul(value, weight), bias)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()

"""Modules that no planner makes: memory handed between functions, constants, in-place callees, recursion."""

# ruff: noqa: N805, RET504, RUF100
from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

__all__ = ["HANDMADE"]


def storage_handed_on() -> tvm.IRModule:
    """A callee places two tensors on a storage of its caller's, who then uses one half of it again."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def double(x: T.handle, y: T.handle):
            n = T.int64()
            source = T.match_buffer(x, (n, T.int64(16)), elem_offset=T.int64(), offset_factor=16)
            target = T.match_buffer(y, (n, T.int64(16)), elem_offset=T.int64(), offset_factor=16)
            for i, j in T.grid(n, T.int64(16)):
                with T.sblock("double"):
                    v, w = T.axis.remap("SS", [i, j])
                    target[v, w] = source[v, w] * T.float32(2)

        @R.function(private=True, pure=False)
        def place(x: R.Tensor(("n", 16), "float32"), s: R.Object) -> R.Tensor(("n", 16), "float32"):
            n = T.int64()
            cls = Module
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            b = R.memory.alloc_tensor(s, R.prim_value(n * 64), R.shape([n, 16]), R.dtype("float32"))
            _1 = cls.double(x, a)
            _2 = cls.double(a, b)
            return b

        @R.function(pure=False)
        def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
            n = T.int64()
            cls = Module
            s = R.memory.alloc_storage(R.shape([n * 128]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            t = R.memory.alloc_storage(R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            b = cls.place(x, s)
            c = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            d = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            _1 = cls.double(b, c)
            _2 = cls.double(c, d)
            _3 = R.memory.kill_tensor(c)
            return d

    return Module


def written_by_a_callee() -> tvm.IRModule:
    """A callee writes the tensor that it is handed; another doubles one in place."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def add(x: T.handle, y: T.handle, z: T.handle):
            n = T.int64()
            a = T.match_buffer(x, (n, T.int64(16)))
            b = T.match_buffer(y, (n, T.int64(16)))
            c = T.match_buffer(z, (n, T.int64(16)))
            for i, j in T.grid(n, T.int64(16)):
                with T.sblock("add"):
                    v, w = T.axis.remap("SS", [i, j])
                    c[v, w] = a[v, w] + b[v, w] * T.float32(3)

        @T.prim_func(private=True, s_tir=True)
        def double(x: T.handle):
            n = T.int64()
            a = T.match_buffer(x, (n, T.int64(16)))
            for i, j in T.grid(n, T.int64(16)):
                with T.sblock("double"):
                    v, w = T.axis.remap("SS", [i, j])
                    a[v, w] = a[v, w] * T.float32(2)

        @R.function(private=True, pure=False)
        def fill(
            x: R.Tensor(("n", 16), "float32"),
            y: R.Tensor(("n", 16), "float32"),
            out: R.Tensor(("n", 16), "float32"),
        ) -> R.Tensor(("n", 16), "float32"):
            cls = Module
            _1 = cls.add(x, y, out)
            _2 = cls.double(out)
            return out

        @R.function(pure=False)
        def main(x: R.Tensor(("n", 16), "float32"), y: R.Tensor(("n", 16), "float32")) -> R.Tensor(
            ("n", 16), "float32"
        ):
            n = T.int64()
            cls = Module
            s = R.memory.alloc_storage(R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            t = R.memory.alloc_storage(R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            b = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            u = R.memory.alloc_storage(R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            c = R.memory.alloc_tensor(u, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            _1 = cls.fill(x, y, a)
            _2 = cls.fill(a, x, b)
            _3 = cls.double(a)
            _4 = cls.add(a, b, c)
            _5 = R.memory.kill_tensor(a)
            _6 = R.memory.kill_tensor(b)
            return c

    return Module


def recursion_in_place() -> tvm.IRModule:
    """A function calls itself on the memory that it was handed, as often as its conditions say."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def double(x: T.handle, y: T.handle):
            n = T.int64()
            source = T.match_buffer(x, (n, T.int64(16)))
            target = T.match_buffer(y, (n, T.int64(16)))
            for i, j in T.grid(n, T.int64(16)):
                with T.sblock("double"):
                    v, w = T.axis.remap("SS", [i, j])
                    target[v, w] = source[v, w] * T.float32(2)

        @R.function(private=True, pure=False)
        def again(
            x: R.Tensor(("n", 16), "float32"),
            out: R.Tensor(("n", 16), "float32"),
            c: R.Tensor((), "bool"),
            d: R.Tensor((), "bool"),
        ) -> R.Tensor(("n", 16), "float32"):
            n = T.int64()
            cls = Module
            _1 = cls.double(x, out)
            if c:
                s = R.memory.alloc_storage(
                    R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8")
                )
                a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
                _2 = cls.double(out, a)
                r = cls.again(a, out, d, R.const(False, "bool"))
            else:
                r = out
            return r

        @R.function(pure=False)
        def main(
            x: R.Tensor(("n", 16), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")
        ) -> R.Tensor(("n", 16), "float32"):
            n = T.int64()
            cls = Module
            s = R.memory.alloc_storage(R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            t = R.memory.alloc_storage(R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            b = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            _1 = cls.again(x, a, c, d)
            _2 = cls.double(a, b)
            return b

    return Module


def two_results_of_a_callee() -> tvm.IRModule:
    """A callee returns two tensors on one storage, which its caller returns with a third."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def double(x: T.handle, y: T.handle):
            n = T.int64()
            source = T.match_buffer(x, (n, T.int64(16)), elem_offset=T.int64(), offset_factor=16)
            target = T.match_buffer(y, (n, T.int64(16)), elem_offset=T.int64(), offset_factor=16)
            for i, j in T.grid(n, T.int64(16)):
                with T.sblock("double"):
                    v, w = T.axis.remap("SS", [i, j])
                    target[v, w] = source[v, w] * T.float32(2)

        @R.function(private=True, pure=False)
        def both(x: R.Tensor(("n", 16), "float32")) -> R.Tuple(
            R.Tensor(("n", 16), "float32"), R.Tensor(("n", 16), "float32")
        ):
            n = T.int64()
            cls = Module
            s = R.memory.alloc_storage(R.shape([n * 128]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            b = R.memory.alloc_tensor(s, R.prim_value(n * 64), R.shape([n, 16]), R.dtype("float32"))
            _1 = cls.double(x, a)
            _2 = cls.double(a, b)
            return (a, b)

        @R.function(pure=False)
        def main(x: R.Tensor(("n", 16), "float32")) -> R.Tuple(
            R.Tensor(("n", 16), "float32"),
            R.Tensor(("n", 16), "float32"),
            R.Tensor(("n", 16), "float32"),
        ):
            n = T.int64()
            cls = Module
            p = cls.both(x)
            a = p[0]
            b = p[1]
            s = R.memory.alloc_storage(R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            c = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            t = R.memory.alloc_storage(R.shape([n * 64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            d = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
            _1 = cls.double(b, c)
            _2 = cls.double(a, d)
            return (a, c, d)

    return Module


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


HANDMADE: Mapping[str, Callable[[], tvm.IRModule]] = {
    made.__name__: made
    for made in (storage_handed_on, written_by_a_callee, recursion_in_place, two_results_of_a_callee)
}
"""Modules with memory operations, behind KillAfterLastUse."""

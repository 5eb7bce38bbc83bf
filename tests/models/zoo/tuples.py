"""Tuples in and out, nested, through functions and kernels; in-place calls."""

# ruff: noqa: N805, RET504
from __future__ import annotations

import tvm
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.zoo.registry import model


@model()
def tuple_in_and_out() -> tvm.IRModule:
    """A pair comes in, a pair goes out."""

    @I.ir_module
    class Module:
        @R.function
        def main(
            p: R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor(("n", 8), "float32")),
        ) -> R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor(("n", 8), "float32")):
            with R.dataflow():
                a = p[0]
                b = p[1]
                s = R.add(a, b)
                d = R.multiply(s, b)
                e = R.exp(d)
                out = (s, e)
                R.output(out)
            return out

    return Module


@model()
def nested_tuples() -> tvm.IRModule:
    """Tuples in tuples, taken apart again while other tensors are allocated."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            with R.dataflow():
                a = R.add(x, x)
                b = R.multiply(a, x)
                t = ((a, b), x)
                inner = t[0]
                c = R.exp(b)
                d = inner[1]
                e = R.add(c, d)
                f = inner[0]
                y = R.add(e, f)
                R.output(y)
            return y

    return Module


@model()
def tuple_through_function() -> tvm.IRModule:
    """A private function that returns a tuple, one field of it an argument."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            cls = Module
            a = R.add(x, x)
            p = cls.both(a)
            b = p[0]
            c = R.multiply(x, x)
            d = p[1]
            e = R.add(b, c)
            y = R.add(d, e)
            return y

        @R.function(private=True)
        def both(
            x: R.Tensor(("m", 8), "float32"),
        ) -> R.Tuple(R.Tensor(("m", 8), "float32"), R.Tensor(("m", 8), "float32")):
            e = R.exp(x)
            return (x, e)

    return Module


@model()
def split_and_join() -> tvm.IRModule:
    """Split into three along a static axis, joined in another order along a dynamic one."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 24), "float32")) -> R.Tensor(("3 * n", 8), "float32"):
            with R.dataflow():
                parts = R.split(x, 3, axis=1)
                a = R.exp(parts[2])
                b = R.add(parts[0], parts[1])
                y = R.concat([b, parts[1], a], axis=0)
                R.output(y)
            return y

    return Module


@model()
def inplace() -> tvm.IRModule:
    """R.call_tir_inplace: the result lies where its first input did."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def double(x: T.handle):
            n = T.int64()
            a = T.match_buffer(x, (n, 8), "float32")
            for i, j in T.grid(n, 8):
                a[i, j] = a[i, j] * T.float32(2)

        @R.function
        def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            n = T.int64()
            cls = Module
            with R.dataflow():
                a = R.add(x, x)
                b = R.call_tir_inplace(
                    cls.double, (a,), inplace_indices=[0], out_ty=[R.Tensor((n, 8), "float32")]
                )
                c = R.exp(x)
                y = R.add(b, c)
                R.output(y)
            return y

    return Module


@model()
def two_outputs_of_a_kernel() -> tvm.IRModule:
    """R.call_tir with two results of different size."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def twice(x: T.handle, y: T.handle, z: T.handle):
            n = T.int64()
            a = T.match_buffer(x, (n,), "float32")
            b = T.match_buffer(y, (n,), "float32")
            c = T.match_buffer(z, (2 * n,), "float32")
            for i in range(n):
                with T.sblock("twice"):
                    vi = T.axis.spatial(n, i)
                    b[vi] = a[vi] + T.float32(1)
                    c[2 * vi] = a[vi]
                    c[2 * vi + 1] = a[vi]

        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("2 * n",), "float32"):
            n = T.int64()
            cls = Module
            with R.dataflow():
                p = R.call_tir(
                    cls.twice, (x,), out_ty=[R.Tensor((n,), "float32"), R.Tensor((2 * n,), "float32")]
                )
                a = p[0]
                b = p[1]
                c = R.concat([a, a], axis=0)
                y = R.add(b, c)
                R.output(y)
            return y

    return Module

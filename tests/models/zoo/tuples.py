"""Tuples in and out, nested, through functions and kernels; in-place calls."""

# ruff: noqa: N801, N805
from __future__ import annotations

from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.zoo.registry import model
from tests.modules import later_ir_module


@model()
@later_ir_module
class tuple_in_and_out:
    """A pair comes in, a pair goes out."""

    @R.function
    def main(
        p: R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor(("n", 8), "float32")),
    ) -> R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor(("n", 8), "float32")):
        with R.dataflow():
            a = p[0]
            b = p[1]
            s = R.add(a, b)
            e = R.exp(R.multiply(s, b))
            out = (s, e)
            R.output(out)
        return out


@model()
@later_ir_module
class nested_tuples:
    """Tuples in and out, nested on the way; one tensor is returned twice."""

    @R.function
    def main(
        p: R.Tuple(R.Tensor(("n", 64), "float32"), R.Tensor(("n", 64), "float32")),
    ) -> R.Tuple(
        R.Tensor(("n", 64), "float32"),
        R.Tuple(R.Tensor((64,), "float32"), R.Tensor(("n", 64), "float32")),
    ):
        with R.dataflow():
            a = p[0]
            b = p[1]
            s = R.add(a, b)
            d = R.multiply(s, b)
            t = ((s, d), a)
            inner = t[0]
            e = R.exp(inner[1])
            f = R.add(e, inner[0])
            h = R.sum(R.multiply(f, e), axis=0)
            out = (f, (h, f))
            R.output(out)
        return out


@model()
@later_ir_module
class tuple_through_function:
    """A private function that returns a tuple, one field of it an argument."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        cls = tuple_through_function
        p = cls.both(R.add(x, x))
        b = p[0]
        c = R.multiply(x, x)
        return R.add(p[1], R.add(b, c))

    @R.function(private=True)
    def both(
        x: R.Tensor(("m", 8), "float32"),
    ) -> R.Tuple(R.Tensor(("m", 8), "float32"), R.Tensor(("m", 8), "float32")):
        e = R.exp(x)
        return (x, e)


@model()
@later_ir_module
class split_and_join:
    """Split into three along a static axis, joined in another order along a dynamic one."""

    @R.function
    def main(x: R.Tensor(("n", 24), "float32")) -> R.Tensor(("3 * n", 8), "float32"):
        with R.dataflow():
            parts = R.split(x, 3, axis=1)
            a = R.exp(parts[2])
            y = R.concat([R.add(parts[0], parts[1]), parts[1], a], axis=0)
            R.output(y)
        return y


@model()
@later_ir_module
class inplace:
    """R.call_tir_inplace twice in a row: the results lie where the first input did."""

    @T.prim_func(private=True)
    def double(x: T.handle):
        n = T.int64()
        a = T.match_buffer(x, (n, 64), "float32")
        for i, j in T.grid(n, 64):
            a[i, j] = a[i, j] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        n = T.int64()
        cls = inplace
        with R.dataflow():
            a = R.add(x, x)
            b = R.call_tir_inplace(
                cls.double, (a,), inplace_indices=[0], out_ty=[R.Tensor((n, 64), "float32")]
            )
            c = R.exp(x)
            d = R.multiply(b, c)
            e = R.call_tir_inplace(
                cls.double, (d,), inplace_indices=[0], out_ty=[R.Tensor((n, 64), "float32")]
            )
            y = R.add(e, c)
            R.output(y)
        return y


@model()
@later_ir_module
class two_outputs_of_a_kernel:
    """R.call_tir with two results of different size."""

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
        cls = two_outputs_of_a_kernel
        with R.dataflow():
            p = R.call_tir(cls.twice, (x,), out_ty=[R.Tensor((n,), "float32"), R.Tensor((2 * n,), "float32")])
            a = p[0]
            y = R.add(p[1], R.concat([a, a], axis=0))
            R.output(y)
        return y

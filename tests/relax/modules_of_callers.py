# ruff: noqa
# mypy: ignore-errors
"""Modules for memory that callers give: branches, calls, late sizes, results that are no tensors of their own."""

from __future__ import annotations

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Branch:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, "m"), "float32"), c: R.Tensor((), "bool")
    ) -> R.Tensor(("n", "m"), "float32"):
        n, m = T.int64(), T.int64()
        if c:
            a: R.Tensor((n, m), "float32") = R.matmul(x, w)
            b: R.Tensor((n, m), "float32") = R.nn.softmax(a)
            y: R.Tensor((n, m), "float32") = R.nn.relu(b)
        else:
            d: R.Tensor((n, 64), "float32") = R.exp(x)
            e: R.Tensor((n, 64), "float32") = R.nn.softmax(d)
            y: R.Tensor((n, m), "float32") = R.matmul(e, w)
        z: R.Tensor((n, m), "float32") = R.exp(y)
        u: R.Tensor((n, m), "float32") = R.nn.softmax(z)
        return u


@I.ir_module
class Calls:
    @R.function
    def layer(x: R.Tensor(("k", 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(
        ("k", 64), "float32"
    ):
        k = T.int64()
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.softmax(a)
            c = R.matmul(b, w)
            d = R.nn.relu(c)
            R.output(d)
        return d

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tuple(
        R.Tensor(("n", 64), "float32"), R.Tensor(("n", 64), "float32")
    ):
        n = T.int64()
        cls = Calls
        a: R.Tensor((n, 64), "float32") = cls.layer(x, w)
        b: R.Tensor((n, 64), "float32") = R.nn.softmax(a)
        c: R.Tensor((n, 64), "float32") = cls.layer(b, w)
        d: R.Tensor((n, 64), "float32") = R.exp(c)
        return (d, x)


@I.ir_module
class Recursive:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        cls = Recursive
        a: R.Tensor((n, 8), "float32") = R.nn.softmax(x)
        if c:
            f: R.Tensor((), "bool") = R.logical_not(c)
            b: R.Tensor((n, 8), "float32") = cls.main(a, f)
            y: R.Tensor((n, 8), "float32") = R.exp(b)
        else:
            y: R.Tensor((n, 8), "float32") = R.exp(a)
        return y


@I.ir_module
class Late:
    @R.function
    def main(
        x: R.Tensor(("n",), "float32"),
        y: R.Tensor(("2 * n", "m"), "float32"),
        q: R.Tensor(("m", "n"), "float32"),
    ) -> R.Tuple(R.Tensor(dtype="float32", ndim=1), R.Tensor(("m", "n"), "float32")):
        n, m = T.int64(), T.int64()
        u = R.unique(x, sorted=True)
        k = T.int64()
        v = R.match_cast(u, R.Tensor((k,), "float32"))
        a = R.exp(v)
        b = R.nn.relu(a)
        c = R.add(b, v)
        d = R.exp(q)
        e = R.nn.softmax(d)
        f = R.exp(e)
        g = R.exp(f)
        return (c, g)


@I.ir_module
class Static:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        a = R.exp(x)
        b = R.nn.softmax(a)
        c = R.exp(b)
        return c


@I.ir_module
class Constants:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tuple(
        R.Tensor(("n", 8), "float32"),
        R.Tensor((2,), "float32"),
        R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor(("n", 8), "float32")),
    ):
        n = T.int64()
        a: R.Tensor((n, 8), "float32") = R.exp(x)
        b: R.Tensor((n, 8), "float32") = R.nn.softmax(a)
        return (b, R.const([1.0, 2.0], "float32"), (b, x))


@I.ir_module
class Nothing:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        return x


@I.ir_module
class Divides:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("m", 8), "float32"), c: R.Tensor((), "bool")
    ) -> R.Tensor((8, 8), "float32"):
        n, m = T.int64(), T.int64()
        if c:
            a: R.Tensor((n // m, 8), "float32") = R.zeros(R.shape([n // m, 8]), "float32")
            b: R.Tensor((n // m, 8), "float32") = R.exp(a)
            bt: R.Tensor((8, n // m), "float32") = R.permute_dims(b)
            r: R.Tensor((8, 8), "float32") = R.matmul(bt, b)
        else:
            d: R.Tensor((n, 8), "float32") = R.exp(x)
            e: R.Tensor((8, n), "float32") = R.permute_dims(d)
            r: R.Tensor((8, 8), "float32") = R.matmul(e, d)
        s: R.Tensor((8, 8), "float32") = R.exp(r)
        return s


@I.ir_module
class Scalar:
    @R.function
    def main(x: R.Tensor(("n", "n"), "float32"), s: R.Shape(["b", "k"])) -> R.Tensor(("n", "k"), "float32"):
        n, k, b = T.int64(), T.int64(), T.int64()
        z: R.Tensor((n, k), "float32") = R.zeros(R.shape([n, k]), "float32")
        t: R.Tensor((n, k), "float32") = R.exp(z)
        u: R.Tensor((n, k), "float32") = R.matmul(x, t)
        v: R.Tensor((n, k), "float32") = R.exp(u)
        return v


@I.ir_module
class Named:
    @R.function
    def main(
        arena: R.Tensor(("n", 8), "float32"),
        arena_bytes: R.Tensor(("m", 8), "float32"),
        result: R.Tensor(("n", 8), "float32"),
    ):
        with R.dataflow():
            a = R.exp(arena)
            b = R.sum(R.sin(arena_bytes), axis=[0])
            c = R.add(a, b)
            d = R.multiply(c, result)
            R.output(d)
        return d


@I.ir_module
class Pair:
    @R.function
    def main(both: R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor(("n", 8), "float32"))) -> R.Tensor(
        ("n", 8), "float32"
    ):
        n = T.int64()
        a: R.Tensor((n, 8), "float32") = both[0]
        b: R.Tensor((n, 8), "float32") = both[1]
        c: R.Tensor((n, 8), "float32") = R.exp(a)
        d: R.Tensor((n, 8), "float32") = R.tanh(c)
        e: R.Tensor((n, 8), "float32") = R.add(d, b)
        return e

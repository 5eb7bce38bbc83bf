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
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, "m"), "float32"), c: R.Tensor((), "bool")):
        if c:
            y = R.nn.relu(R.nn.softmax(R.matmul(x, w)))
        else:
            y = R.matmul(R.nn.softmax(R.exp(x)), w)
        return R.nn.softmax(R.exp(y))


@I.ir_module
class Calls:
    @R.function
    def layer(x: R.Tensor(("k", 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(
        ("k", 64), "float32"
    ):
        with R.dataflow():
            d = R.nn.relu(R.matmul(R.nn.softmax(R.matmul(x, w)), w))
            R.output(d)
        return d

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        cls = Calls
        c = cls.layer(R.nn.softmax(cls.layer(x, w)), w)
        return (R.exp(c), x)


@I.ir_module
class Recursive:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("n", 8), "float32"):
        cls = Recursive
        a = R.nn.softmax(x)
        if c:
            f = R.logical_not(c)
            y = R.exp(cls.main(a, f))
        else:
            y = R.exp(a)
        return y


@I.ir_module
class Late:
    @R.function
    def main(
        x: R.Tensor(("n",), "float32"),
        y: R.Tensor(("2 * n", "m"), "float32"),
        q: R.Tensor(("m", "n"), "float32"),
    ):
        k = T.int64()
        v = R.match_cast(R.unique(x, sorted=True), R.Tensor((k,), "float32"))
        c = R.add(R.nn.relu(R.exp(v)), v)
        return (c, R.exp(R.exp(R.nn.softmax(R.exp(q)))))


@I.ir_module
class Static:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        return R.exp(R.nn.softmax(R.exp(x)))


@I.ir_module
class Constants:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        b = R.nn.softmax(R.exp(x))
        return (b, R.const([1.0, 2.0], "float32"), (b, x))


@I.ir_module
class Nothing:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        return x


@I.ir_module
class Divides:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("m", 8), "float32"), c: R.Tensor((), "bool")):
        n, m = T.int64(), T.int64()
        if c:
            b = R.exp(R.zeros(R.shape([n // m, 8]), "float32"))
            r = R.matmul(R.permute_dims(b), b)
        else:
            d = R.exp(x)
            r = R.matmul(R.permute_dims(d), d)
        return R.exp(r)


@I.ir_module
class Scalar:
    @R.function
    def main(x: R.Tensor(("n", "n"), "float32"), s: R.Shape(["b", "k"])) -> R.Tensor(("n", "k"), "float32"):
        n, k = T.int64(), T.int64()
        t = R.exp(R.zeros(R.shape([n, k]), "float32"))
        return R.exp(R.matmul(x, t))


@I.ir_module
class Named:
    @R.function
    def main(
        arena: R.Tensor(("n", 8), "float32"),
        arena_bytes: R.Tensor(("m", 8), "float32"),
        result: R.Tensor(("n", 8), "float32"),
    ):
        c = R.add(R.exp(arena), R.sum(R.sin(arena_bytes), axis=[0]))
        return R.multiply(c, result)


@I.ir_module
class Pair:
    @R.function
    def main(both: R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor(("n", 8), "float32"))):
        b = both[1]
        return R.add(R.tanh(R.exp(both[0])), b)

"""Branches, functions that call each other, recursion."""

# ruff: noqa: N805, RET504, SIM108
from __future__ import annotations

import tvm
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.zoo.registry import model

SEGFAULT = "StaticPlanBlockMemory uses a storage of the then-branch in the else-branch (apache/tvm#20191)"


@model(fault=SEGFAULT)
def branches() -> tvm.IRModule:
    """Both branches have an intermediate tensor of their own."""

    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            if c:
                a = R.add(x, x)
                b = R.multiply(a, a)
                y = R.add(b, x)
            else:
                d = R.multiply(x, x)
                e = R.add(d, x)
                y = R.multiply(e, d)
            return y

    return Module


@model()
def branch_then_only() -> tvm.IRModule:
    """Only one branch needs memory; the other hands its input on."""

    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            a = R.multiply(x, x)
            if c:
                b = R.exp(a)
                y = R.add(b, x)
            else:
                y = a
            z = R.add(y, x)
            return z

    return Module


@model()
def branches_of_different_size() -> tvm.IRModule:
    """The branches' intermediate tensors have sizes that never agree: nothing is shared between them."""

    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor((8,), "float32"):
            if c:
                a = R.concat([x, x], axis=0)
                y = R.sum(a, axis=0)
            else:
                b = R.concat([x, x, x], axis=0)
                y = R.max(b, axis=0)
            return y

    return Module


@model(fault=SEGFAULT)
def nested_branches() -> tvm.IRModule:
    """An If in each branch of an If."""

    @I.ir_module
    class Module:
        @R.function
        def main(
            c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")
        ) -> R.Tensor(("n", 8), "float32"):
            s = R.add(x, x)
            if c:
                a = R.multiply(s, x)
                if d:
                    b = R.exp(a)
                    y1 = R.add(b, x)
                else:
                    y1 = R.add(a, x)
                y = y1
            else:
                e = R.exp(s)
                y = R.multiply(e, s)
            return y

    return Module


@model(sizes={"n": 20}, fault=SEGFAULT)
def branch_on_shape() -> tvm.IRModule:
    """The condition is a size: short inputs take another way."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            n = T.int64()
            if R.prim_value(n <= 16):
                a = R.exp(x)
                y = R.add(a, x)
            else:
                b = R.multiply(x, x)
                y = R.add(b, x)
            return y

    return Module


@model()
def subroutines() -> tvm.IRModule:
    """A private function called twice, with dynamic arguments."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            ("n", 8), "float32"
        ):
            cls = Module
            a = cls.layer(x, w)
            b = R.multiply(a, a)
            y = cls.layer(b, w)
            return y

        @R.function(private=True)
        def layer(x: R.Tensor(("m", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
            ("m", 8), "float32"
        ):
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.add(b, x)
            return c

    return Module


@model()
def subroutine_returns_argument() -> tvm.IRModule:
    """A private function that may hand its argument straight back."""

    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            cls = Module
            a = R.add(x, x)
            b = cls.choose(c, a)
            d = R.multiply(x, x)
            y = R.add(b, d)
            return y

        @R.function(private=True)
        def choose(c: R.Tensor((), "bool"), x: R.Tensor(("m", 8), "float32")) -> R.Tensor(
            ("m", 8), "float32"
        ):
            if c:
                y = x
            else:
                y = R.exp(x)
            return y

    return Module


@model(sizes={"n": 6}, runs=False)
def recursion() -> tvm.IRModule:
    """A function that calls itself, once more, where a condition says so."""

    @I.ir_module
    class Module:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            cls = Module
            if c:
                a = R.add(x, x)
                y = cls.main(R.const(False, "bool"), a)
            else:
                y = x
            return y

    return Module


@model()
def several_functions() -> tvm.IRModule:
    """Three entry points with symbols of the same name and different meaning."""

    @I.ir_module
    class Module:
        @R.function
        def embed(x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", 16), "float32")) -> R.Tensor(
            ("n", 16), "float32"
        ):
            with R.dataflow():
                y = R.matmul(x, w)
                z = R.nn.gelu(y)
                R.output(z)
            return z

        @R.function
        def pool(x: R.Tensor(("k", "n", 16), "float32")) -> R.Tensor(("k", 16), "float32"):
            with R.dataflow():
                a = R.exp(x)
                y = R.mean(a, axis=1)
                R.output(y)
            return y

        @R.function
        def score(x: R.Tensor((16, "n"), "float32")) -> R.Tensor(("n", 16), "float32"):
            with R.dataflow():
                t = R.permute_dims(x)
                y = R.nn.softmax(t, axis=-1)
                R.output(y)
            return y

    return Module

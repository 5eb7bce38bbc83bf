"""Branches, functions that call each other, recursion."""

# ruff: noqa: N801, N805, RET504, SIM108
from __future__ import annotations

from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.zoo.registry import model
from tests.modules import later_ir_module

SEGFAULT = "StaticPlanBlockMemory uses a storage of the then-branch in the else-branch (apache/tvm#20191)"


@model(fault=SEGFAULT)
@later_ir_module
class branches:
    """Both branches have an intermediate tensor of their own."""

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


@model()
@later_ir_module
class branch_then_only:
    """Only one branch needs memory; the other hands its input on."""

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


@model()
@later_ir_module
class branches_of_different_size:
    """The branches' intermediate tensors have sizes that never agree: nothing is shared between them."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor((8,), "float32"):
        if c:
            a = R.concat([x, x], axis=0)
            y = R.sum(a, axis=0)
        else:
            b = R.concat([x, x, x], axis=0)
            y = R.max(b, axis=0)
        return y


@model(fault=SEGFAULT)
@later_ir_module
class nested_branches:
    """An If in each branch of an If."""

    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor(
        ("n", 8), "float32"
    ):
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


@model(sizes={"n": 20}, fault=SEGFAULT)
@later_ir_module
class branch_on_shape:
    """The condition is a size: short inputs take another way."""

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


@model()
@later_ir_module
class subroutines:
    """A private function called with rows n, then 2 * n; each of its calls needs memory of its own."""

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(
        ("2 * n", 64), "float32"
    ):
        cls = subroutines
        e = R.exp(x)
        a = cls.layer(e, w)
        b = R.multiply(a, e)
        c = R.concat([b, a], axis=0)
        d = cls.layer(c, w)
        y = R.add(d, c)
        return y

    @R.function(private=True)
    def layer(x: R.Tensor(("m", 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(
        ("m", 64), "float32"
    ):
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        c = R.exp(b)
        d = R.multiply(c, a)
        e = R.add(d, x)
        return e


@model()
@later_ir_module
class subroutine_returns_argument:
    """A private function that may hand its argument straight back."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        cls = subroutine_returns_argument
        a = R.add(x, x)
        b = cls.choose(c, a)
        d = R.multiply(x, x)
        y = R.add(b, d)
        return y

    @R.function(private=True)
    def choose(c: R.Tensor((), "bool"), x: R.Tensor(("m", 8), "float32")) -> R.Tensor(("m", 8), "float32"):
        if c:
            y = x
        else:
            y = R.exp(x)
        return y


@model(sizes={"n": 6}, runs=False)
@later_ir_module
class recursion:
    """A function that calls itself, once more, where a condition says so."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = recursion
        if c:
            a = R.add(x, x)
            y = cls.main(R.const(False, "bool"), a)
        else:
            y = x
        return y


@model()
@later_ir_module
class several_functions:
    """Three entry points with symbols of the same name and different meaning."""

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

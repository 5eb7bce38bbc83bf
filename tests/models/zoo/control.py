"""Branches, functions that call each other, recursion."""

# ruff: noqa: N801, N805, SIM108
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
            y = R.add(R.multiply(a, a), x)
        else:
            d = R.multiply(x, x)
            y = R.multiply(R.add(d, x), d)
        return y


@model()
@later_ir_module
class branch_then_only:
    """Only one branch needs memory; the other hands its input on."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        a = R.multiply(x, x)
        if c:
            y = R.add(R.exp(a), x)
        else:
            y = a
        return R.add(y, x)


@model()
@later_ir_module
class branches_of_different_size:
    """The branches' intermediate tensors have sizes that never agree: nothing is shared between them."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor((8,), "float32"):
        if c:
            y = R.sum(R.concat([x, x], axis=0), axis=0)
        else:
            y = R.max(R.concat([x, x, x], axis=0), axis=0)
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
                y1 = R.add(R.exp(a), x)
            else:
                y1 = R.add(a, x)
            y = y1
        else:
            y = R.multiply(R.exp(s), s)
        return y


@model(sizes={"n": 20}, fault=SEGFAULT)
@later_ir_module
class branch_on_shape:
    """The condition is a size: short inputs take another way."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        if R.prim_value(n <= 16):
            y = R.add(R.exp(x), x)
        else:
            y = R.add(R.multiply(x, x), x)
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
        c = R.concat([R.multiply(a, e), a], axis=0)
        return R.add(cls.layer(c, w), c)

    @R.function(private=True)
    def layer(x: R.Tensor(("m", 64), "float32"), w: R.Tensor((64, 64), "float32")) -> R.Tensor(
        ("m", 64), "float32"
    ):
        a = R.matmul(x, w)
        d = R.multiply(R.exp(R.nn.relu(a)), a)
        return R.add(d, x)


@model()
@later_ir_module
class subroutine_returns_argument:
    """A private function that may hand its argument straight back."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        cls = subroutine_returns_argument
        return R.add(cls.choose(c, R.add(x, x)), R.multiply(x, x))

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
            z = R.nn.gelu(R.matmul(x, w))
            R.output(z)
        return z

    @R.function
    def pool(x: R.Tensor(("k", "n", 16), "float32")) -> R.Tensor(("k", 16), "float32"):
        with R.dataflow():
            y = R.mean(R.exp(x), axis=1)
            R.output(y)
        return y

    @R.function
    def score(x: R.Tensor((16, "n"), "float32")) -> R.Tensor(("n", 16), "float32"):
        with R.dataflow():
            y = R.nn.softmax(R.permute_dims(x), axis=-1)
            R.output(y)
        return y

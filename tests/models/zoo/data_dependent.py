"""Shapes that only the data decide."""

# ruff: noqa: F841, N801, N805
from __future__ import annotations

from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.zoo.registry import model
from tests.modules import later_ir_module


@model()
@later_ir_module
class unique:
    """The distinct values, then a match_cast that gives their number a name."""

    @R.function
    def main(x: R.Tensor(("n",), "int64")) -> R.Tensor(ndim=1, dtype="int64"):
        k = T.int64()
        a = R.unique(x, sorted=R.prim_value(True), axis=None)
        b = R.match_cast(a, R.Tensor((k,), "int64"))
        return R.multiply(R.add(b, b), b)


@model()
@later_ir_module
class nonzero:
    """Only the data say how many rows k are chosen; k is known from a match_cast in the middle on."""

    @R.function
    def main(flags: R.Tensor(("n",), "int64"), x: R.Tensor(("n", 64), "float32")) -> R.Tensor(
        (64,), "float32"
    ):
        k = T.int64()
        f = R.multiply(R.exp(x), x)
        found = R.nonzero(flags)
        places = R.match_cast(found, R.Tensor((1, k), "int64"))
        chosen = R.take(f, R.squeeze(places, axis=[0]), axis=0, mode="clip")
        g = R.exp(chosen)
        return R.sum(R.add(R.multiply(g, chosen), g), axis=0)


@model(runs=False)
@later_ir_module
class shape_from_tensor:
    """The shape of the result stands in a tensor."""

    @R.function
    def main(x: R.Tensor((1, 1), "float32"), s: R.Tensor((2,), "int64")) -> R.Tensor(ndim=2, dtype="float32"):
        p = T.int64()
        q = T.int64()
        shape = R.tensor_to_shape(s)
        known = R.match_cast(shape, R.Shape([p, q]))
        return R.exp(R.broadcast_to(x, R.shape([p, q])))

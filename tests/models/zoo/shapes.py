"""Symbolic shapes: reshapes, slices, padding, gathering, broadcasting, shape and scalar parameters."""

# ruff: noqa: N801, N805
from __future__ import annotations

from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.zoo.registry import model
from tests.modules import later_ir_module


@model()
@later_ir_module
class reshape_heads:
    """A chain of reshapes within dataflow: views of views."""

    @R.function
    def main(x: R.Tensor(("b", "s", 64), "float32")) -> R.Tensor(("b", "s", 64), "float32"):
        b = T.int64()
        s = T.int64()
        with R.dataflow():
            joined = R.reshape(R.exp(x), R.shape([b, s * 64]))
            heads = R.reshape(joined, R.shape([b * s, 4, 16]))
            flat = R.reshape(R.add(heads, heads), R.shape([b * s * 64]))
            rows = R.reshape(R.multiply(flat, flat), R.shape([b, s, 64]))
            y = R.add(R.nn.softmax(rows, axis=-1), rows)
            R.output(y)
        return y


@model()
@later_ir_module
class reshape_blocks:
    """k blocks of 64 elements, flat and back: floor divisions that divide out."""

    @R.function
    def main(x: R.Tensor(("k", 64), "float32")) -> R.Tensor(("k", 64), "float32"):
        k = T.int64()
        with R.dataflow():
            flat = R.reshape(R.exp(x), R.shape([k * 64]))
            y = R.add(R.reshape(R.add(flat, flat), R.shape([k * 64 // 64, 64])), x)
            R.output(y)
        return y


@model(sizes={"n": 128})
@later_ir_module
class reshape_divides:
    """n elements as n // 64 rows of 64: right for multiples of 64 only."""

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n // 64", 64), "float32"):
        n = T.int64()
        with R.dataflow():
            y = R.exp(R.reshape(R.add(x, x), R.shape([n // 64, 64])))
            R.output(y)
        return y


@model()
@later_ir_module
class flatten:
    """All dimensions into one."""

    @R.function
    def main(x: R.Tensor(("b", "n", 4), "float32")) -> R.Tensor(("b * n * 4",), "float32"):
        with R.dataflow():
            f = R.flatten(R.exp(x))
            y = R.add(f, f)
            R.output(y)
        return y


@model()
@later_ir_module
class shape_parameter:
    """The output's shape comes in as a value."""

    @R.function
    def main(x: R.Tensor((1, 8), "float32"), s: R.Shape(["m", 8])) -> R.Tensor(("m", 8), "float32"):
        m = T.int64()
        with R.dataflow():
            y = R.exp(R.broadcast_to(x, R.shape([m, 8])))
            R.output(y)
        return y


@model()
@later_ir_module
class scalar_parameter:
    """The number of rows comes in as a scalar."""

    @R.function
    def main(x: R.Tensor((1, 8), "float32"), k: R.Prim("int64")) -> R.Tensor(("k", 8), "float32"):
        k = T.int64()
        with R.dataflow():
            y = R.exp(R.broadcast_to(x, R.shape([k, 8])))
            R.output(y)
        return y


@model()
@later_ir_module
class slice_tail:
    """The first column block and a strided slice of the rest."""

    @R.function
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            b = R.strided_slice(R.exp(x), axes=[1], begin=[0], end=[8], strides=[2])
            y = R.add(b, b)
            R.output(y)
        return y


@model(sizes={"n": 5})
@later_ir_module
class slice_rows:
    """All rows but the first: the extent is a Max and Min of sizes."""

    @R.function
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor((16,), "float32"):
        n = T.int64()
        with R.dataflow():
            c = R.exp(R.strided_slice(R.exp(x), axes=[0], begin=[1], end=[n]))
            y = R.sum(c, axis=0)
            R.output(y)
        return y


@model()
@later_ir_module
class padding:
    """Two rows in front, one behind."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n + 3", 8), "float32"):
        with R.dataflow():
            y = R.exp(R.nn.pad(R.exp(x), (2, 1, 0, 0)))
            R.output(y)
        return y


@model()
@later_ir_module
class gather:
    """k rows out of n."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), i: R.Tensor(("k",), "int64")) -> R.Tensor(("k", 8), "float32"):
        with R.dataflow():
            b = R.take(R.exp(x), i, axis=0, mode="clip")
            y = R.add(b, b)
            R.output(y)
        return y


@model(sizes={"n": 4, "m": 4})
@later_ir_module
class broadcasting:
    """Every pair of n and m rows."""

    @R.function
    def main(x: R.Tensor(("n", 1, 8), "float32"), y: R.Tensor((1, "m", 8), "float32")) -> R.Tensor(
        ("n", "m"), "float32"
    ):
        with R.dataflow():
            a = R.subtract(x, y)
            z = R.sqrt(R.sum(R.multiply(a, a), axis=2))
            R.output(z)
        return z


@model(sizes={"p": 3, "n": 2, "t": 5})
@later_ir_module
class append_to_cache:
    """Rows behind the cached ones; that p + n is t is checked by a match_cast."""

    @R.function
    def main(
        cache: R.Tensor(("p", 8), "float32"),
        new: R.Tensor(("n", 8), "float32"),
        mask: R.Tensor(("t",), "float32"),
    ) -> R.Tensor(("t",), "float32"):
        t = T.int64()
        both = R.concat([cache, new], axis=0)
        whole = R.match_cast(both, R.Tensor((t, 8), "float32"))
        return R.add(R.sum(whole, axis=1), mask)


@model()
@later_ir_module
class many_element_types:
    """Eight-, sixteen-, thirty-two- and sixty-four-bit tensors of the same extents, in turn."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            a = R.astype(x, "float16")
            d = R.astype(R.astype(R.add(a, a), "int8"), "float64")
            y = R.add(R.astype(R.multiply(d, d), "float32"), x)
            R.output(y)
        return y

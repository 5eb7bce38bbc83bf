"""What programs are made of, one construct a model: branches, calls, in-place kernels, views, casts."""

# ruff: noqa: N801, N805, RET504
from __future__ import annotations

from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.planned.case import bind, case
from tests.modules import later_ir_module

_ROWS = bind("n", 1, 7, 16, 33, 64, 100)  # 64 is the bound, where one is declared
_DEVICES = "StaticPlanBlockMemory gives storage of one device to a tensor on another"


@case(_ROWS)
@later_ir_module
class tuples:
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
            g = R.multiply(f, e)
            h = R.sum(g, axis=0)
            out = (f, (h, f))
            R.output(out)
        return out


@case(_ROWS)
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


@case(
    [{"b": b, "s": s} for b, s in ((1, 1), (3, 5), (4, 16), (2, 64), (7, 33), (5, 100))], declared={"s": 64}
)
@later_ir_module
class reshapes:
    """A chain of reshapes within dataflow: views of views; s declared to be at most 64."""

    @R.function
    def main(x: R.Tensor(("b", "s", 64), "float32")) -> R.Tensor(("b", "s", 64), "float32"):
        b = T.int64()
        s = T.int64()
        with R.dataflow():
            a = R.exp(x)
            joined = R.reshape(a, R.shape([b, s * 64]))
            heads = R.reshape(joined, R.shape([b * s, 4, 16]))
            c = R.add(heads, heads)
            flat = R.reshape(c, R.shape([b * s * 64]))
            d = R.multiply(flat, flat)
            rows = R.reshape(d, R.shape([b, s, 64]))
            e = R.nn.softmax(rows, axis=-1)
            y = R.add(e, rows)
            R.output(y)
        return y


@case([{"p": p, "n": n, "t": p + n} for p, n in ((1, 1), (7, 1), (16, 16), (33, 4), (64, 64), (100, 3))])
@later_ir_module
class match_cast:
    """That p + n rows are t is known from a match_cast on."""

    @R.function
    def main(
        cache: R.Tensor(("p", 64), "float32"),
        new: R.Tensor(("n", 64), "float32"),
        mask: R.Tensor(("t", 64), "float32"),
    ) -> R.Tensor(("t", 64), "float32"):
        t = T.int64()
        e = R.exp(new)
        both = R.concat([cache, e], axis=0)
        whole = R.match_cast(both, R.Tensor((t, 64), "float32"))
        scores = R.multiply(whole, whole)
        masked = R.add(scores, mask)
        f = R.exp(masked)
        y = R.add(f, whole)
        return y


@case(_ROWS)
@later_ir_module
class nonzero:
    """Only the data say how many rows k are chosen; k is known from a match_cast in the middle on."""

    @R.function
    def main(flags: R.Tensor(("n",), "int64"), x: R.Tensor(("n", 64), "float32")) -> R.Tensor(
        (64,), "float32"
    ):
        k = T.int64()
        e = R.exp(x)
        f = R.multiply(e, x)
        found = R.nonzero(flags)
        places = R.match_cast(found, R.Tensor((1, k), "int64"))
        first = R.squeeze(places, axis=[0])
        chosen = R.take(f, first, axis=0, mode="clip")
        g = R.exp(chosen)
        h = R.multiply(g, chosen)
        i = R.add(h, g)
        y = R.sum(i, axis=0)
        return y


@case(_ROWS)
@later_ir_module
class argsort:
    """Rows put in order by a packed function that sorts."""

    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        with R.dataflow():
            e = R.exp(x)
            keys = R.sum(e, axis=1)
            order = R.argsort(keys, axis=0, descending=True, dtype="int64")
            sorted_rows = R.take(e, order, axis=0, mode="clip")
            f = R.multiply(sorted_rows, sorted_rows)
            y = R.add(f, sorted_rows)
            R.output(y)
        return y


@case(_ROWS)
@later_ir_module
class element_types:
    """Eight-, sixteen-, thirty-two- and sixty-four-bit tensors of the same extents, in turn."""

    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        with R.dataflow():
            a = R.astype(x, "float16")
            b = R.add(a, a)
            c = R.astype(b, "int8")
            d = R.astype(c, "float64")
            e = R.multiply(d, d)
            f = R.astype(e, "float32")
            g = R.astype(b, "float32")
            y = R.add(f, g)
            R.output(y)
        return y


@case(_ROWS, devices=2, theirs=_DEVICES)
@later_ir_module
class two_devices:
    """The first half of the work on one device, the second on another."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "global"), I.vdevice("llvm", 1, "global")]})

    @R.function
    def main(x: R.Tensor(("n", 64), "float32", "llvm:0")) -> R.Tensor(("n", 64), "float32", "llvm:1"):
        a = R.exp(x)
        b = R.multiply(a, a)
        c = R.add(b, a)
        d = R.to_vdevice(c, "llvm:1")
        e = R.exp(d)
        f = R.multiply(e, d)
        g = R.add(f, e)
        y = R.multiply(g, f)
        return y

# ruff: noqa
# mypy: ignore-errors
"""Modules with what kernels refuse, and extents that may differ."""

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Scores:
    @T.prim_func(s_tir=True, private=True)
    def biased(a: T.handle, y: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        B = T.match_buffer(b, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.sblock("only"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w] + Y[v]

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("k",), "float32")):
        n = T.int64()
        cls = Scores
        with R.dataflow():
            scores: R.Tensor((n, n), "float32") = R.matmul(x, R.permute_dims(x))
            given = R.call_tir(cls.biased, (scores, y), out_ty=R.Tensor((n, n), "float32"))
            result: R.Tensor((n, 8), "float32") = R.matmul(R.nn.softmax(given), x)
            R.output(result)
        return result


@I.ir_module
class Joined:
    @T.prim_func(s_tir=True, private=True)
    def weighed(a: T.handle, y: T.handle, b: T.Buffer((T.int64(8),), "float32")):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        for j, i in T.grid(T.int64(8), n):
            with T.sblock("only"):
                w, v = T.axis.remap("SR", [j, i])
                with T.init():
                    b[w] = T.float32(0)
                b[w] = b[w] + A[v, w] * Y[v]

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor(("k",), "float32")):
        cls = Joined
        with R.dataflow():
            first, second = R.tanh(x), R.exp(x)
            total = R.call_tir(cls.weighed, (first, y), out_ty=R.Tensor((8,), "float32"))
            both = R.concat((first, second), axis=0)
            R.output(total, both)
        return (total, both)

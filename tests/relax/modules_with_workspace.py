# ruff: noqa
"""Relax modules whose kernels take workspace, read by symalloc's own loader."""

from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Attention:
    @R.function
    def main(x: R.Tensor(("b", "n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        R.func_attr({"tir_var_upper_bound": {"n": 512}})
        with R.dataflow():
            q = R.matmul(x, w)
            k = R.permute_dims(R.matmul(x, w), [0, 2, 1])
            y = R.exp(R.nn.softmax(R.matmul(q, k)))
            R.output(y)
        return y


@I.ir_module
class Mixed:
    """Kernels of very different needs: padding, two reductions, and a softmax so small that it needs none."""

    @R.function
    def main(
        x: R.Tensor((1, 3, "h", "v"), "float32"),
        k: R.Tensor((8, 3, 3, 3), "float32"),
        w: R.Tensor((64,), "float32"),
        s: R.Tensor(("m", "n"), "float32"),
    ):
        return (R.nn.conv2d(x, k, padding=1), R.nn.softmax(w), R.nn.softmax(s))


@I.ir_module
class Odd:
    """Scratch inside a parallel loop."""

    @T.prim_func(private=True, s_tir=True)
    def each(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, n), "float32")
        B = T.match_buffer(b, (n, n), "float32")
        for i in T.parallel(n):
            with T.sblock("row"):
                u = T.axis.spatial(n, i)
                T.reads(A[u, 0:n])
                T.writes(B[u, 0:n])
                S = T.sblock_alloc_buffer((n,), "float32")
                for j in range(n):
                    with T.sblock("fill"):
                        v = T.axis.spatial(n, j)
                        S[v] = A[u, v]
                for j in range(n):
                    with T.sblock("turn"):
                        v = T.axis.spatial(n, j)
                        B[u, v] = S[n - 1 - v]

    @R.function
    def main(x: R.Tensor(("n", "n"), "float32")) -> R.Tensor(("n", "n"), "float32"):
        n = T.int64()
        cls = Odd
        return R.call_tir(cls.each, (x,), R.Tensor((n, n), "float32"))


@I.ir_module
class Calls:
    """A callee whose kernel runs at two sizes, a packed function, and what comes in goes out again."""

    @R.function(private=True)
    def layer(x: R.Tensor(("m", 16), "float32")) -> R.Tensor(("m", 16), "float32"):
        return R.exp(R.nn.softmax(x))

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 16), "float32"), c: R.Tensor((), "bool")):
        cls = Calls
        e = R.sum(cls.layer(R.concat([cls.layer(x), x], axis=0)), axis=0)
        seen = R.call_packed("nobody.knows", e, ty_args=(R.Tensor(ndim=1, dtype="float32"),))
        if c:
            r = R.sin(x)
        else:
            r = R.cos(x)
        return (R.concat([e, e], axis=0), x, r)

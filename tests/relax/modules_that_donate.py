# ruff: noqa
"""Relax modules whose inputs can carry their outputs, read by symalloc's own loader."""

from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Optimizer:
    """A step of gradient descent, and a view of what it did."""

    @R.function
    def main(w: R.Tensor(("n", 8), "float32"), g: R.Tensor(("n", 8), "float32")):
        updated = R.subtract(w, R.multiply(g, R.const(0.1, "float32")))
        normal = R.nn.softmax(updated)
        return (updated, normal)


@I.ir_module
class Momentum:
    """One kernel with two outputs, each over an input."""

    @T.prim_func(private=True)
    def step(w: T.handle, m: T.handle, g: T.handle, w_out: T.handle, m_out: T.handle):
        n = T.int64()
        W = T.match_buffer(w, (n,), "float32")
        M = T.match_buffer(m, (n,), "float32")
        G = T.match_buffer(g, (n,), "float32")
        V = T.match_buffer(w_out, (n,), "float32")
        N = T.match_buffer(m_out, (n,), "float32")
        for i in range(n):
            V[i] = W[i] - M[i] * T.float32(0.9) - G[i]
        for i in range(n):
            N[i] = M[i] * T.float32(0.9) + G[i]

    @R.function
    def main(w: R.Tensor(("n",), "float32"), m: R.Tensor(("n",), "float32"), g: R.Tensor(("n",), "float32")):
        n = T.int64()
        scaled = R.multiply(g, R.const(0.1, "float32"))
        return R.call_tir(
            Momentum.step, (w, m, scaled), [R.Tensor((n,), "float32"), R.Tensor((n,), "float32")]
        )


@I.ir_module
class Cache:
    """A key is appended to a cache with room for `c` rows, of which `p` are in use."""

    @T.prim_func(private=True)
    def append(cache: T.handle, new: T.handle, at: T.int64, out: T.handle):
        c, m = T.int64(), T.int64()
        A = T.match_buffer(cache, (c, 16), "float32")
        N = T.match_buffer(new, (1, 16), "float32")
        B = T.match_buffer(out, (m, 16), "float32")
        for i, j in T.grid(m, 16):
            B[i, j] = T.if_then_else(i == at, N[0, j], A[i, j])

    @R.function
    def main(
        caches: R.Tuple(R.Tensor(("c", 16), "float32"), R.Tensor(("c", 16), "float32")),
        new: R.Tensor((1, 16), "float32"),
        past: R.Shape(["p"]),
    ):
        p = T.int64()
        keys = caches[0]
        longer = R.call_tir(Cache.append, (keys, new, p), R.Tensor((p + 1, 16), "float32"))
        return (R.nn.softmax(R.matmul(new, R.permute_dims(longer))), longer)


@I.ir_module
class Branches:
    """Each side allocates its own result; the input is read on one of them before."""

    @R.function
    def main(
        c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32"), z: R.Tensor(("n", 8), "float32")
    ) -> R.Tensor(("n", 8), "float32"):
        if c:
            y = R.multiply(R.add(x, z), z)
        else:
            d = R.exp(z)
            y = R.add(R.multiply(d, z), d)
        return y


@I.ir_module
class Flat:
    """The input is larger than the output, of another shape and element type."""

    @R.function
    def main(room: R.Tensor(("n", "m"), "float32"), x: R.Tensor(("n",), "float16")):
        b = R.add(R.exp(x), x)
        return b


@I.ir_module
class Reads:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), z: R.Tensor(("n",), "float32")):
        y = R.exp(z)
        return (y, R.multiply(y, x))


@I.ir_module
class Called:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return Called.again(R.exp(x))

    @R.function
    def again(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return Called.again(R.add(x, x))

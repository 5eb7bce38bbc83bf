# ruff: noqa
"""Relax modules whose kernels have buffers of their own, read by symalloc's own loader."""

from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Everywhere:
    """Two buffers of two types, at several sizes, in branches and in a callee."""

    @T.prim_func(private=True, s_tir=True)
    def turned(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (m, n), "float32")
        S = T.sblock_alloc_buffer((m, n), "float32")
        K = T.sblock_alloc_buffer((n * 2 + 1,), "int64")
        for i, j in T.grid(m, n):
            S[i, j] = A[j, i]
        for i in range(n * 2 + 1):
            K[i] = i * i
        for i, j in T.grid(m, n):
            B[i, j] = S[i, j] + T.Cast("float32", K[2 * j + 1])

    @R.function(private=True)
    def twice(x: R.Tensor(("k", 3), "float32")) -> R.Tensor(("k", 3), "float32"):
        k = T.int64()
        a = R.call_tir(Everywhere.turned, (x,), R.Tensor((3, k), "float32"))
        return R.call_tir(Everywhere.turned, (a,), R.Tensor((k, 3), "float32"))

    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((3, "n"), "float32"):
        n = T.int64()
        y = Everywhere.twice(x)
        if c:
            r = R.call_tir(Everywhere.turned, (y,), R.Tensor((3, n), "float32"))
        else:
            r = R.call_tir(Everywhere.turned, (R.exp(y),), R.Tensor((3, n), "float32"))
        return r


@I.ir_module
class Extents:
    """Extents that come as numbers, from shapes and from a parameter."""

    @T.prim_func(private=True, s_tir=True)
    def rows(a: T.handle, m: T.int64, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        S = T.sblock_alloc_buffer((m, n), "float32")
        for i, j in T.grid(m, n):
            S[i, j] = A[j]
        for j in range(n):
            B[j] = S[m - 1, n - 1 - j]

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32"), k: R.Prim("int64")):
        n, m = T.int64(), T.int64()
        a = R.call_tir(Extents.rows, (x, R.prim_value(m + 1)), R.Tensor((n,), "float32"))
        return R.call_tir(Extents.rows, (a, k), R.Tensor((n,), "float32"))


@I.ir_module
class Unknown:
    """A buffer as large as a tensor of which only the rank is known."""

    @T.prim_func(private=True, s_tir=True)
    def summed(a: T.handle, b: T.Buffer((1,), "float32")):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        S = T.sblock_alloc_buffer((n,), "float32")
        for i in range(n):
            S[i] = A[i] + A[i]
        b[0] = T.float32(0)
        for i in range(n):
            b[0] = b[0] + S[i]

    @R.function
    def main(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor((1,), "float32"):
        return R.call_tir(Unknown.summed, (x,), R.Tensor((1,), "float32"))


@I.ir_module
class Halves:
    """The buffer is read in its second half before anything is written there."""

    @T.prim_func(private=True, s_tir=True)
    def turned(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (2 * n,), "float32")
        S = T.sblock_alloc_buffer((2 * n,), "float32")
        for i in range(n):
            S[i] = A[i]
        for i in range(2 * n):
            B[i] = S[2 * n - 1 - i]

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n * 2",), "float32"):
        n = T.int64()
        return R.call_tir(Halves.turned, (x,), R.Tensor((2 * n,), "float32"))


@I.ir_module
class Second:
    """The kernel runs on the second of two devices."""

    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "global"), I.vdevice("llvm", 1, "global")]})

    @T.prim_func(private=True, s_tir=True)
    def turned(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        S = T.sblock_alloc_buffer((n,), "float32")
        for i in range(n):
            S[i] = A[i] + A[i]
        for i in range(n):
            B[i] = S[n - 1 - i]

    @R.function
    def main(x: R.Tensor(("n",), "float32", "llvm:1")) -> R.Tensor(("n",), "float32", "llvm:1"):
        n = T.int64()
        a = R.call_tir(Second.turned, (x,), R.Tensor((n,), "float32", "llvm:1"))
        return R.call_tir(Second.turned, (a,), R.Tensor((n,), "float32", "llvm:1"))

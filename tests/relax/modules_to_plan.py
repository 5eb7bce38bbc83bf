# ruff: noqa
"""Relax modules for the planner's tests, read by symalloc's own loader."""

from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        a = R.add(x, x)
        b = R.multiply(a, x)
        return R.subtract(b, a)


@I.ir_module
class Branches:
    """Both sides allocate: TVM's default pipeline plans the else-side onto a storage of the then-side."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        before = R.exp(x)
        if c:
            a = R.add(x, x)
            b = R.add(a, before)
            t = R.multiply(a, b)
            y = t
        else:
            d = R.multiply(x, x)
            e = R.multiply(d, x)
            f = R.add(d, e)
            y = f
        z = R.add(y, y)
        return R.multiply(z, x)


@I.ir_module
class Nested:
    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        n = T.int64()
        kept = R.sin(x)
        if c:
            a = R.exp(x)
            if d:
                p = R.add(a, kept)
                q = R.multiply(p, a)
                inner = q
            else:
                r = R.subtract(a, x)
                s = R.multiply(r, r)
                inner = s
            u = R.add(inner, a)
            y = u
        else:
            v = R.cos(kept)
            w = R.add(v, kept)
            y = w
        z = R.add(y, y)
        return R.add(z, x)


@I.ir_module
class Tuples:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tuple(
        R.Tensor(("n", 4), "float32"), R.Tensor(("n", 4), "float32")
    ):
        n = T.int64()
        a = R.exp(x)
        b = R.add(a, x)
        both = (a, b)
        c = R.multiply(both[0], both[0])
        d = R.add(c, both[1])
        e = R.add(d, d)
        return (e, d)


@I.ir_module
class InPlace:
    @T.prim_func(private=True)
    def double(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            A[i] = A[i] + A[i]

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        cls = InPlace
        a = R.exp(x)
        b = R.call_tir_inplace(cls.double, (a,), [0], R.Tensor((n,), "float32"))
        c = R.sin(x)
        d = R.add(b, c)
        return R.add(d, x)


@I.ir_module
class Reshapes:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        with R.dataflow():
            a = R.exp(x)
            b = R.reshape(a, R.shape([n * 8]))
            c = R.sin(x)
            d = R.add(b, b)
            e = R.reshape(d, R.shape([n, 8]))
            f = R.add(e, c)
            R.output(f)
        return f


@I.ir_module
class Identity:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        a = R.add(x, R.const(1.0, "float32"))
        b = R.call_packed("symalloc.tests.identity", a, ty_args=(R.Tensor((n, 8), "float32"),))
        c = R.multiply(x, R.const(2.0, "float32"))
        d = R.multiply(c, c)
        return R.add(b, d)


@I.ir_module
class Cast:
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        n, k = T.int64(), T.int64()
        a = R.exp(x)
        b = R.add(a, x)
        half = R.call_packed("symalloc.tests.head", b, ty_args=(R.Tensor(ndim=1, dtype="float32"),))
        h = R.match_cast(half, R.Tensor((k,), "float32"))
        c = R.exp(h)
        d = R.add(c, h)
        return d


@I.ir_module
class Calls:
    @R.function(private=True)
    def looks(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        a = R.exp(x)
        return R.add(a, x)

    @R.function(private=True)
    def returns(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return x

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = Calls
        a = R.sin(x)
        b = cls.looks(a)
        c = R.cos(x)
        d = cls.returns(c)
        e = R.exp(x)
        f = R.add(d, e)
        g = R.add(f, b)
        return R.add(g, g)

    @R.function
    def other(x: R.Tensor(("m", "k"), "float32")) -> R.Tensor(("m", "k"), "float32"):
        a = R.exp(x)
        b = R.add(a, x)
        return R.add(b, b)


@I.ir_module
class Exported:
    """The function that `main` calls can be called from outside as well."""

    @R.function
    def helper(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        a = R.exp(x)
        b = R.add(a, x)
        return R.multiply(b, a)

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = Exported
        a = R.sin(x)
        b = cls.helper(a)
        c = R.add(b, a)
        d = cls.helper(c)
        return R.multiply(d, b)


@I.ir_module
class FromShape:
    @R.function
    def main(s: R.Shape(["n"])) -> R.Tensor((), "float32"):
        n = T.int64()
        a = R.full(R.shape([n, 64]), R.const(1.0, "float32"), "float32")
        b = R.add(a, a)
        return R.sum(b)


@I.ir_module
class FromEmpty:
    """Any number of rows costs the caller nothing here."""

    @R.function
    def main(x: R.Tensor(("n", 0), "float32")) -> R.Tensor((), "float32"):
        n = T.int64()
        a = R.full(R.shape([n, 64]), R.const(1.0, "float32"), "float32")
        b = R.add(a, a)
        return R.sum(b)


@I.ir_module
class CastEmpty:
    """The same of a tensor whose rows a match_cast counts."""

    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor((), "float32"):
        n = T.int64()
        _ = R.match_cast(x, R.Tensor((n, 0), "float32"))
        a = R.full(R.shape([n, 64]), R.const(1.0, "float32"), "float32")
        b = R.add(a, a)
        return R.sum(b)


@I.ir_module
class Joined:
    @R.function
    def main(
        a: R.Tensor(("n", 8), "float32"), b: R.Tensor(("p", 8), "float32"), c: R.Tensor(("t", 8), "float32")
    ) -> R.Tensor(("t", 8), "float32"):
        t = T.int64()
        joined = R.concat((a, b), axis=0)
        cast = R.match_cast(joined, R.Tensor((t, 8), "float32"))
        d = R.add(cast, c)
        e = R.multiply(d, cast)
        return R.add(e, d)


@I.ir_module
class Static:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        return R.add(R.exp(x), x)


@I.ir_module
class Scalars:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        total = R.sum(R.exp(x))
        return R.add(x, total)


@I.ir_module
class Sorted:
    """What is sorted, and what comes of it, is seen by a packed function."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        a = R.exp(x)
        b = R.add(a, x)
        c = R.sort(b)
        d = R.multiply(c, a)
        e = R.add(d, b)
        f = R.add(e, c)
        return R.add(f, a)


@I.ir_module
class Weighed:
    """The branch depends on the weights alone."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((1, 8), "float32")) -> R.Tensor(
        ("n", 8), "float32"
    ):
        R.func_attr({"num_input": 1})
        n = T.int64()
        a = R.exp(w)
        c = R.greater(R.sum(a), R.const(0.0, "float32"))
        if c:
            p = R.multiply(x, a)
            q = R.add(p, a)
            y = q
        else:
            r = R.add(x, x)
            s = R.exp(r)
            y = s
        return R.multiply(y, a)


@I.ir_module
class Prepared:
    """What is made of the weights has a constant size."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 1), "float32")) -> R.Tensor(
        ("n", 8), "float32"
    ):
        R.func_attr({"num_input": 1})
        a = R.exp(x)
        t = R.permute_dims(w)
        b = R.multiply(a, t)
        u = R.permute_dims(w)
        c = R.add(b, u)
        return R.multiply(c, a)

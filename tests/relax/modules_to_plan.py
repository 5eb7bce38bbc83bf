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
        before = R.exp(x)
        if c:
            a = R.add(x, x)
            y = R.multiply(a, R.add(a, before))
        else:
            d = R.multiply(x, x)
            y = R.add(d, R.multiply(d, x))
        return R.multiply(R.add(y, y), x)


@I.ir_module
class Nested:
    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        kept = R.sin(x)
        if c:
            a = R.exp(x)
            if d:
                inner = R.multiply(R.add(a, kept), a)
            else:
                r = R.subtract(a, x)
                inner = R.multiply(r, r)
            y = R.add(inner, a)
        else:
            v = R.add(R.cos(kept), kept)
            y = v
        return R.add(R.add(y, y), x)


@I.ir_module
class Tuples:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        a = R.exp(x)
        both = (a, R.add(a, x))
        d = R.add(R.multiply(both[0], both[0]), both[1])
        return (R.add(d, d), d)


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
        return R.add(R.add(b, R.sin(x)), x)


@I.ir_module
class Reshapes:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        with R.dataflow():
            b = R.reshape(R.exp(x), R.shape([n * 8]))
            c = R.sin(x)
            f = R.add(R.reshape(R.add(b, b), R.shape([n, 8])), c)
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
        return R.add(b, R.multiply(c, c))


@I.ir_module
class Cast:
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        k = T.int64()
        b = R.add(R.exp(x), x)
        half = R.call_packed("symalloc.tests.head", b, ty_args=(R.Tensor(ndim=1, dtype="float32"),))
        h = R.match_cast(half, R.Tensor((k,), "float32"))
        return R.add(R.exp(h), h)


@I.ir_module
class Calls:
    @R.function(private=True)
    def looks(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.add(R.exp(x), x)

    @R.function(private=True)
    def returns(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return x

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = Calls
        b = cls.looks(R.sin(x))
        d = cls.returns(R.cos(x))
        g = R.add(R.add(d, R.exp(x)), b)
        return R.add(g, g)

    @R.function
    def other(x: R.Tensor(("m", "k"), "float32")) -> R.Tensor(("m", "k"), "float32"):
        b = R.add(R.exp(x), x)
        return R.add(b, b)


@I.ir_module
class Exported:
    """The function that `main` calls can be called from outside as well."""

    @R.function
    def helper(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        a = R.exp(x)
        return R.multiply(R.add(a, x), a)

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = Exported
        a = R.sin(x)
        b = cls.helper(a)
        return R.multiply(cls.helper(R.add(b, a)), b)


@I.ir_module
class FromShape:
    @R.function
    def main(s: R.Shape(["n"])) -> R.Tensor((), "float32"):
        n = T.int64()
        a = R.full(R.shape([n, 64]), R.const(1.0, "float32"), "float32")
        return R.sum(R.add(a, a))


@I.ir_module
class FromEmpty:
    """Any number of rows costs the caller nothing here."""

    @R.function
    def main(x: R.Tensor(("n", 0), "float32")) -> R.Tensor((), "float32"):
        n = T.int64()
        a = R.full(R.shape([n, 64]), R.const(1.0, "float32"), "float32")
        return R.sum(R.add(a, a))


@I.ir_module
class CastEmpty:
    """The same of a tensor whose rows a match_cast counts."""

    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor((), "float32"):
        n = T.int64()
        _ = R.match_cast(x, R.Tensor((n, 0), "float32"))
        a = R.full(R.shape([n, 64]), R.const(1.0, "float32"), "float32")
        return R.sum(R.add(a, a))


@I.ir_module
class Joined:
    @R.function
    def main(
        a: R.Tensor(("n", 8), "float32"), b: R.Tensor(("p", 8), "float32"), c: R.Tensor(("t", 8), "float32")
    ) -> R.Tensor(("t", 8), "float32"):
        t = T.int64()
        cast = R.match_cast(R.concat((a, b), axis=0), R.Tensor((t, 8), "float32"))
        d = R.add(cast, c)
        return R.add(R.multiply(d, cast), d)


@I.ir_module
class Scalars:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        return R.add(x, R.sum(R.exp(x)))


@I.ir_module
class Sorted:
    """What is sorted, and what comes of it, is seen by a packed function."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        a = R.exp(x)
        b = R.add(a, x)
        c = R.sort(b)
        return R.add(R.add(R.add(R.multiply(c, a), b), c), a)


@I.ir_module
class Weighed:
    """The branch depends on the weights alone."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((1, 8), "float32")):
        R.func_attr({"num_input": 1})
        a = R.exp(w)
        c = R.greater(R.sum(a), R.const(0.0, "float32"))
        if c:
            y = R.add(R.multiply(x, a), a)
        else:
            y = R.exp(R.add(x, x))
        return R.multiply(y, a)


@I.ir_module
class Prepared:
    """What is made of the weights has a constant size."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 1), "float32")):
        R.func_attr({"num_input": 1})
        a = R.exp(x)
        b = R.multiply(a, R.permute_dims(w))
        return R.multiply(R.add(b, R.permute_dims(w)), a)

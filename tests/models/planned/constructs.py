"""What programs are made of, one construct a model: in-place kernels, views, casts, calls, branches."""

# ruff: noqa: N801, N805, RET504
from __future__ import annotations

from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.planned.case import bind, case
from tests.models.zoo import control, data_dependent, shapes
from tests.models.zoo import tuples as zoo_tuples
from tests.modules import later_ir_module

_ROWS = bind("n", 1, 7, 16, 33, 64, 100)  # 64 is the bound, where one is declared
_SEGFAULT = "StaticPlanBlockMemory uses a storage of the then-branch in the else-branch"
_DEVICES = "StaticPlanBlockMemory gives storage of one device to a tensor on another"


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


case(_ROWS, name="tuples")(zoo_tuples.nested_tuples)
case(_ROWS)(zoo_tuples.inplace)
case(_ROWS)(data_dependent.nonzero)
case(_ROWS, name="element_types")(shapes.many_element_types)
case(
    [{"b": b, "s": s} for b, s in ((1, 1), (3, 5), (4, 16), (2, 64), (7, 33), (5, 100))],
    name="reshapes",
    declared={"s": 64},
)(shapes.reshape_heads)


# -- branches and calls --------------------------------------------------------------------------------------


@case(_ROWS, paths=("c",), theirs=_SEGFAULT, declared={"n": 64})
@later_ir_module
class branches:
    """Both branches allocate, tensors of different size; n declared to be at most 64."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        s = R.add(x, x)
        if c:
            a = R.concat([s, x], axis=1)
            b = R.multiply(a, a)
            e = R.exp(b)
            y = R.strided_slice(e, axes=[1], begin=[32], end=[96])
        else:
            d = R.multiply(s, x)
            f = R.exp(d)
            g = R.add(f, d)
            y = R.multiply(g, s)
        z = R.add(y, x)
        return z


@case(_ROWS, paths=("c", "d"), theirs=_SEGFAULT)
@later_ir_module
class nested_branches:
    """An If in one branch of an If; a tensor from before crosses both."""

    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")) -> R.Tensor(
        ("n", 64), "float32"
    ):
        s = R.add(x, x)
        t = R.exp(s)
        if c:
            a = R.multiply(s, x)
            if d:
                b = R.exp(a)
                g = R.multiply(b, a)
                y1 = R.add(g, t)
            else:
                h = R.add(a, t)
                y1 = R.multiply(h, a)
            y = R.add(y1, s)
        else:
            e = R.exp(t)
            f = R.multiply(e, s)
            y = R.add(f, e)
        z = R.multiply(y, t)
        w = R.add(z, y)
        return w


@case(_ROWS, paths=("c",), theirs=_SEGFAULT)
@later_ir_module
class computed_condition:
    """The condition is an intermediate tensor like any other, and so is the next one."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        s = R.add(x, x)
        t = R.exp(s)
        d = R.logical_not(c)
        if d:
            a = R.multiply(t, s)
            e = R.logical_not(d)
            f = R.logical_or(e, c)
            if f:
                y1 = R.add(a, t)
            else:
                g = R.exp(a)
                y1 = R.multiply(g, a)
            y = R.add(y1, s)
        else:
            b = R.multiply(t, t)
            y = R.add(b, s)
        z = R.multiply(y, t)
        return z


case(_ROWS, name="callee")(control.subroutines)
case(_ROWS, name="two_entries", function="score")(control.several_functions)


# -- branches whose values cross them ------------------------------------------------------------------------


@case(_ROWS, paths=("c", "d"))
@later_ir_module
class returned_on_one_path:
    """Tuples out of an If within an If; each path returns another of the tensors made before and within."""

    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        s = R.exp(x)
        if c:
            a = R.add(s, x)
            b = R.multiply(a, s)
            if d:
                e = R.concat([a, b], axis=1)
                f = R.exp(e)
                g = R.strided_slice(f, axes=[1], begin=[0], end=[64])
                y1 = (g, a)
            else:
                y1 = (b, s)
            p = y1[0]
            q = y1[1]
            t = R.multiply(p, q)
            y = (t, p)
        else:
            y = (s, s)
        u = y[0]
        w = y[1]
        z = R.add(u, w)
        k = R.tanh(z)
        r = R.add(k, u)
        return (r, w)


@case(_ROWS, paths=("c",))
@later_ir_module
class outer_returned:
    """The If is the result; one branch yields a tensor from before it."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        s = R.exp(x)
        t = R.add(s, x)
        if c:
            a = R.concat([s, t], axis=1)
            b = R.exp(a)
            y = R.strided_slice(b, axes=[1], begin=[0], end=[64])
        else:
            y = s
        return y


@case(_ROWS, paths=("c",))
@later_ir_module
class rows_of_a_branch:
    """Each branch yields other rows; a match_cast behind the If says how many."""

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        k = T.int64()
        s = R.exp(x)
        if c:
            a = R.concat([s, x], axis=0)
            y = R.match_cast(a, R.Tensor(ndim=2, dtype="float32"))
        else:
            b = R.tanh(s)
            y = R.match_cast(b, R.Tensor(ndim=2, dtype="float32"))
        z = R.match_cast(y, R.Tensor((k, 64), "float32"))
        e = R.exp(z)
        f = R.multiply(e, z)
        g = R.add(f, e)
        h = R.sum(g, axis=[0])
        r = R.add(s, h)
        return r


@case(_ROWS, paths=("c", "d"), theirs=_SEGFAULT)
@later_ir_module
class two_in_a_row:
    """The value of the first If is used in the second, and returned."""

    @R.function
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n", 64), "float32")):
        s = R.exp(x)
        if c:
            a = R.add(s, x)
            y = R.multiply(a, a)
        else:
            y = s
        t = R.tanh(y)
        if d:
            b = R.concat([t, y], axis=1)
            e = R.exp(b)
            z = R.sum(e, axis=[1], keepdims=True)
        else:
            z = R.sum(t, axis=[1], keepdims=True)
        u = R.add(z, t)
        w = R.exp(u)
        return (w, y)

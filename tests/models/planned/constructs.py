"""What programs are made of, one construct a model: in-place kernels, views, casts, calls, branches."""

# ruff: noqa: N801, N805, SIM108
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
        both = R.concat([cache, R.exp(new)], axis=0)
        whole = R.match_cast(both, R.Tensor((t, 64), "float32"))
        f = R.exp(R.add(R.multiply(whole, whole), mask))
        return R.add(f, whole)


@case(_ROWS)
@later_ir_module
class argsort:
    """Rows put in order by a packed function that sorts."""

    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        with R.dataflow():
            e = R.exp(x)
            order = R.argsort(R.sum(e, axis=1), axis=0, descending=True, dtype="int64")
            sorted_rows = R.take(e, order, axis=0, mode="clip")
            y = R.add(R.multiply(sorted_rows, sorted_rows), sorted_rows)
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
        d = R.to_vdevice(R.add(R.multiply(a, a), a), "llvm:1")
        e = R.exp(d)
        f = R.multiply(e, d)
        return R.multiply(R.add(f, e), f)


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
            y = R.strided_slice(R.exp(R.multiply(a, a)), axes=[1], begin=[32], end=[96])
        else:
            d = R.multiply(s, x)
            y = R.multiply(R.add(R.exp(d), d), s)
        return R.add(y, x)


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
                y1 = R.add(R.multiply(R.exp(a), a), t)
            else:
                y1 = R.multiply(R.add(a, t), a)
            y = R.add(y1, s)
        else:
            e = R.exp(t)
            y = R.add(R.multiply(e, s), e)
        return R.add(R.multiply(y, t), y)


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
            f = R.logical_or(R.logical_not(d), c)
            if f:
                y1 = R.add(a, t)
            else:
                y1 = R.multiply(R.exp(a), a)
            y = R.add(y1, s)
        else:
            y = R.add(R.multiply(t, t), s)
        return R.multiply(y, t)


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
                f = R.exp(R.concat([a, b], axis=1))
                g = R.strided_slice(f, axes=[1], begin=[0], end=[64])
                y1 = (g, a)
            else:
                y1 = (b, s)
            p = y1[0]
            t = R.multiply(p, y1[1])
            y = (t, p)
        else:
            y = (s, s)
        u = y[0]
        w = y[1]
        r = R.add(R.tanh(R.add(u, w)), u)
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
            b = R.exp(R.concat([s, t], axis=1))
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
        h = R.sum(R.add(R.multiply(e, z), e), axis=[0])
        return R.add(s, h)


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
            z = R.sum(R.exp(R.concat([t, y], axis=1)), axis=[1], keepdims=True)
        else:
            z = R.sum(t, axis=[1], keepdims=True)
        w = R.exp(R.add(z, t))
        return (w, y)

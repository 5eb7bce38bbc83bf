"""Branches and calls between functions."""

# ruff: noqa: N801, N805, RET504
from __future__ import annotations

from tvm.script import relax as R  # noqa: N812

from tests.models.planned.case import bind, case
from tests.models.zoo import control
from tests.modules import later_ir_module

_ROWS = bind("n", 1, 7, 16, 33, 64, 100)  # 64 is the bound, where one is declared
_SEGFAULT = "StaticPlanBlockMemory uses a storage of the then-branch in the else-branch"


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

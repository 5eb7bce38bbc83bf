"""Branches whose values cross them: returned on one path only, of unknown rows, or dead on one path."""

# ruff: noqa: N801, N805, RET504
from __future__ import annotations

from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.planned.case import bind, case
from tests.modules import later_ir_module

_ROWS = bind("n", 1, 7, 16, 33, 64, 100)
_SEGFAULT = "StaticPlanBlockMemory uses a storage of the then-branch in the else-branch"


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

"""What programs are made of, one construct a model: branches, calls, in-place kernels, views, casts."""

# ruff: noqa: N801, N805, RET504
from __future__ import annotations

from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.planned.case import bind, case
from tests.models.zoo import data_dependent, shapes
from tests.models.zoo import tuples as zoo_tuples
from tests.modules import later_ir_module

_ROWS = bind("n", 1, 7, 16, 33, 64, 100)  # 64 is the bound, where one is declared
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

"""Calls of Relax functions replaced by what they do: the same results, on TVM's virtual machine."""

# ruff: noqa: N805, SIM108
from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import symalloc
import symalloc.relax.passes.inline_calls as subject
from symalloc.relax.passes.inline_calls import inline_calls
from symalloc.relax.passes.pipeline import lower
from tests.relax.built import bits, functions, machine


@I.ir_module
class Layers:
    """A function called at two lengths, which calls another; and one that stays an entry."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        a = Layers.layer(x, w)
        return Layers.layer(R.concat([a, x], axis=0), w)

    @R.function(private=True)
    def layer(x: R.Tensor(("m", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
        ("m", 8), "float32"
    ):
        return R.add(Layers.either(x, R.matmul(x, w)), x)

    @R.function
    def either(x: R.Tensor(("m", 8), "float32"), y: R.Tensor(("m", 8), "float32")) -> R.Tensor(
        ("m", 8), "float32"
    ):
        m = T.int64()
        if R.prim_value(m <= 3):
            z = R.multiply(x, y)
        else:
            z = R.exp(y)
        return z


@I.ir_module
class Tuples:
    """Tuples and scalars in and out, a symbol that the callee itself binds, twice."""

    @R.function
    def main(x: R.Tensor(("n",), "int64")):
        a = Tuples.distinct(x)
        t = Tuples.pair((x, R.add(x, x)), R.prim_value(2))
        c = Tuples.distinct(t[1])
        return (a, c, t[0])

    @R.function(private=True)
    def distinct(x: R.Tensor(("m",), "int64")) -> R.Tensor(ndim=1, dtype="int64"):
        k = T.int64()
        a = R.unique(x, sorted=R.prim_value(True), axis=None)
        b = R.match_cast(a, R.Tensor((k,), "int64"))
        return R.multiply(b, b)

    @R.function(private=True)
    def pair(t: R.Tuple(R.Tensor(("m",), "int64"), R.Tensor(("m",), "int64")), s: R.Prim("int64")) -> R.Tuple(
        R.Tensor(("m",), "int64"), R.Tensor(("m",), "int64")
    ):
        a = t[0]
        return (R.multiply(t[1], a), a)


@I.ir_module
class Unknown:
    """The virtual machine checks the argument when `looks` is entered."""

    @R.function
    def main(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
        return Unknown.looks(x)

    @R.function(private=True)
    def looks(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        return R.add(x, x)


X, W = np.random.default_rng(0).random((2, 8, 8), "float32")


@pytest.mark.parametrize(
    ("module", "left", "calls"),
    [
        (Layers, {"main", "either"}, [(X[:rows], W) for rows in (0, 1, 3, 5)]),
        (Tuples, {"main"}, [(np.array(values, "int64"),) for values in ([3], [2, 2, 1, 5], [0, 0, 0])]),
    ],
)
def test_the_same_comes_out(
    module: tvm.IRModule, left: set[str], calls: list[tuple[np.ndarray, ...]]
) -> None:
    lowered = lower(module, "llvm")
    inlined = inline_calls(lowered)
    assert functions(inlined) == left
    before, after = machine(lowered), machine(inlined)
    assert all(bits(before, *arguments) == bits(after, *arguments) for arguments in calls)


def test_an_argument_that_must_be_checked_stays_an_argument() -> None:
    assert functions(inline_calls(lower(Unknown, "llvm"))) == {"main", "looks"}


def test_a_module_without_calls_is_left_alone() -> None:
    lowered = lower(tvm.IRModule({"either": Layers["either"]}), "llvm")
    assert inline_calls(lowered).same_as(lowered)


def test_the_budget_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MOST_BINDINGS", 0)
    assert functions(inline_calls(lower(Layers, "llvm"))) == {"main", "layer", "either"}


@I.ir_module
class Divides:
    """The callee divides by an extent that may be 0."""

    @R.function
    def always(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
        return Divides.share(x, y)

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")):
        if c:
            b = Divides.share(x, y)
        else:
            b = R.sum(x)
        return b

    @R.function(private=True)
    def share(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")) -> R.Tensor((), "float32"):
        n, m = T.int64(), T.int64()
        return R.sum(R.zeros(R.shape([n // m]), "float32"))


def test_what_a_branch_divides_by_is_not_looked_at_beside_it() -> None:
    """TVM evaluates every shape of a function at its entry: to divide by 0 there is a SIGFPE."""
    inlined = inline_calls(lower(Divides, "llvm"))
    assert "share" not in inlined["always"].script()
    assert "share" in inlined["main"].script()
    planned = symalloc.plan(Divides).module
    given = np.ones(3, "float32"), np.ones(0, "float32"), np.array(False)
    assert bits(machine(planned), *given) == [np.float32(3).tobytes()]

"""Calls of Relax functions replaced by what they do: the same results, on TVM's virtual machine."""

# ruff: noqa: N805, RET504, SIM108
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import symalloc
import symalloc.relax.passes.inline_calls as subject
from symalloc.relax.passes.inline_calls import inline_calls
from symalloc.relax.passes.pipeline import lower
from tests.relax.built import functions, machine


@I.ir_module
class Layers:
    """A function called at two lengths, which calls another; and one that stays an entry."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
        ("2 * n", 8), "float32"
    ):
        cls = Layers
        a = cls.layer(x, w)
        b = R.concat([a, x], axis=0)
        c = cls.layer(b, w)
        return c

    @R.function(private=True)
    def layer(x: R.Tensor(("m", 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor(
        ("m", 8), "float32"
    ):
        cls = Layers
        a = R.matmul(x, w)
        b = cls.either(x, a)
        c = R.add(b, x)
        return c

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
    def main(x: R.Tensor(("n",), "int64")) -> R.Tuple(
        R.Tensor(ndim=1, dtype="int64"), R.Tensor(ndim=1, dtype="int64"), R.Tensor(("n",), "int64")
    ):
        cls = Tuples
        a = cls.distinct(x)
        b = R.add(x, x)
        t = cls.pair((x, b), R.prim_value(2))
        c = cls.distinct(t[1])
        return (a, c, t[0])

    @R.function(private=True)
    def distinct(x: R.Tensor(("m",), "int64")) -> R.Tensor(ndim=1, dtype="int64"):
        k = T.int64()
        a = R.unique(x, sorted=R.prim_value(True), axis=None)
        b = R.match_cast(a, R.Tensor((k,), "int64"))
        c = R.multiply(b, b)
        return c

    @R.function(private=True)
    def pair(t: R.Tuple(R.Tensor(("m",), "int64"), R.Tensor(("m",), "int64")), s: R.Prim("int64")) -> R.Tuple(
        R.Tensor(("m",), "int64"), R.Tensor(("m",), "int64")
    ):
        a = t[0]
        b = R.multiply(t[1], a)
        return (b, a)


@I.ir_module
class Unknown:
    """The virtual machine checks the argument when `looks` is entered."""

    @R.function
    def main(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
        cls = Unknown
        y = cls.looks(x)
        return y

    @R.function(private=True)
    def looks(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        y = R.add(x, x)
        return y


def run(lowered: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    results = machine(lowered)["main"](*map(tvm.runtime.tensor, inputs))
    return [r.numpy() for r in (results if isinstance(results, Sequence) else [results])]


@pytest.mark.parametrize("rows", [0, 1, 3, 5])
def test_the_same_comes_out(rows: int) -> None:
    x, w = np.random.default_rng(rows).random((2, 8, 8), "float32")
    lowered = lower(Layers, "llvm")
    inlined = inline_calls(lowered)
    assert functions(inlined) == {"main", "either"}
    np.testing.assert_array_equal(run(inlined, x[:rows], w), run(lowered, x[:rows], w))


def test_tuples_scalars_and_symbols_of_the_callee() -> None:
    lowered = lower(Tuples, "llvm")
    inlined = inline_calls(lowered)
    assert functions(inlined) == {"main"}
    for values in ([3], [2, 2, 1, 5], [0, 0, 0]):
        x = np.array(values, "int64")
        for ours, theirs in zip(run(inlined, x), run(lowered, x), strict=True):
            np.testing.assert_array_equal(ours, theirs)


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
    def always(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")) -> R.Tensor((), "float32"):
        cls = Divides
        a = cls.share(x, y)
        return a

    @R.function
    def main(
        x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")
    ) -> R.Tensor((), "float32"):
        cls = Divides
        if c:
            b = cls.share(x, y)
        else:
            b = R.sum(x)
        return b

    @R.function(private=True)
    def share(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")) -> R.Tensor((), "float32"):
        n, m = T.int64(), T.int64()
        a = R.zeros(R.shape([n // m]), "float32")
        b = R.sum(a)
        return b


def test_what_a_branch_divides_by_is_not_looked_at_beside_it() -> None:
    """TVM evaluates every shape of a function at its entry: to divide by 0 there is a SIGFPE."""
    inlined = inline_calls(lower(Divides, "llvm"))
    assert "share" not in inlined["always"].script()
    assert "share" in inlined["main"].script()
    planned = symalloc.plan(Divides).module
    built = relax.VirtualMachine(relax.build(planned, "llvm"), tvm.cpu())
    x, none, no = np.ones(3, "float32"), np.ones(0, "float32"), np.array(False)
    assert built["main"](*map(tvm.runtime.tensor, (x, none, no))).numpy() == 3

"""Arguments, bindings, comparison, and jobs in a process of their own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.errors import RunError, SymallocError
from symalloc.program import types
from symalloc.program.ir import Block, Function, Origin, TupleValue, Var
from symalloc.relax.files.load import load_one
from symalloc.relax.run.inputs import random_arguments
from symalloc.relax.run.runner import Runner
from symalloc.relax.workers.worker_pool import call_in_child
from symalloc.size.expr import Expr, floordiv, symbol
from tests.relax.built import MODULES, SCRIPT, graph

FLOAT, INT = types.DType("float32", 32), types.DType("int64", 64)
N = symbol("n")


def tensor(*shape: Expr) -> types.TensorType:
    return types.TensorType(shape=shape, dtype=FLOAT)


def function(*kinds: types.Type, **origins: Origin) -> Function:
    return Function(
        name="f",
        params=tuple(Var(f"p{i}", kind) for i, kind in enumerate(kinds)),
        body=Block(instructions=(), result=TupleValue(())),
        result_type=types.TupleType(fields=()),
        symbols=origins,
    )


def test_arguments_are_the_same_for_the_same_seed() -> None:
    f = function(tensor(N, N), n=Origin.DIMENSION)
    (one,), (again,), (other,) = (random_arguments(f, {"n": 3}, seed=s) for s in (7, 7, 8))
    assert isinstance(one, np.ndarray) and isinstance(again, np.ndarray) and isinstance(other, np.ndarray)
    assert one.tobytes() == again.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("binding", "problem"),
    [
        ({}, r"no value for `batch`, `n`; add --bind batch=128 --bind n=128"),
        ({"n": 1}, r"no value for `batch`"),
        ({"n": 1, "batch": 1, "batsch": 1}, r"`batsch` is no symbol .*; did you mean `batch`\?"),
        ({"n": -1, "batch": 1}, r"`n` is an extent of a tensor and cannot be -1"),
        ({"n": 2, "batch": 1}, r"the shape of `p0` comes out as \(-1,\)"),
        ({"n": 0, "batch": 1}, r"the shape of `p1` divides by zero"),
        ({"n": 1, "batch": 10**30}, r"`p2` with extents .* does not fit in memory"),
    ],
)
def test_a_binding_that_makes_no_sense_is_refused(binding: dict[str, int], problem: str) -> None:
    shapes = (tensor(1 - N), tensor(floordiv(8, N)), tensor(symbol("batch") * (1 << 40)))
    f = function(*shapes, n=Origin.DIMENSION, batch=Origin.DIMENSION)
    with pytest.raises(RunError, match=problem):
        random_arguments(f, binding, seed=0)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (types.OpaqueType(), ", an object: one public function"),
        (types.TensorType(shape=None, dtype=FLOAT, ndim=2), ": its type leaves its shape open"),
        (types.TensorType(shape=(N,), dtype=None), ": its type leaves its element type open"),
        (types.ShapeType(values=None, ndim=2), ": its type leaves its shape open"),
        (types.ScalarType(value=None, dtype=INT), ": its type leaves its value open"),
        (types.FunctionType(), ": it is a function"),
        (types.StorageType(), ": it is memory that no tensor describes"),
    ],
)
def test_a_parameter_that_its_type_leaves_open_is_refused(kind: types.Type, why: str) -> None:
    with pytest.raises(RunError, match=f"no argument can be made up for the parameter `p0`{why}"):
        random_arguments(function(kind), {}, seed=0)


# -- running ------------------------------------------------------------------------------------------------


def test_a_difference_is_seen_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planned side is built from another module: one that computes 2x + x instead of 2x * x - 2x."""
    chain, other = MODULES.Chain, MODULES.Reshapes
    runner, wrong = Runner(chain), Runner(other)
    monkeypatch.setattr(runner, "planned", wrong.planned)
    result = runner.run({"n": 3}, check=True)
    assert result.difference is not None and result.difference.startswith("output 0 differs in ")


def garbage(beside: Any) -> tvm.IRModule:
    """The largest elements of n rows, which nothing writes where there are none; and a tensor beside."""

    def write(emit: Any, x: relax.Var, y: relax.Var) -> relax.Expr:
        most = emit(relax.op.add(emit(relax.op.max(x, axis=[0])), relax.const(1.0)))
        return relax.Tuple([most, emit(beside(y, y))])

    return graph(write, x=("n", 4), y=(3,))


def test_garbage_is_told_from_a_wrong_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planned side is the unplanned module on memory that holds other numbers, then a wrong one."""
    runner, other = Runner(garbage(relax.op.multiply)), Runner(garbage(relax.op.add))
    monkeypatch.setattr(runner, "_unplanned", runner._filled[1])
    for planned, difference, undetermined in (
        (runner._filled[0], None, "output 0 in 4 of 4 elements"),
        (other._filled[0], "output 0 differs in 4 of 4 elements", None),
    ):
        monkeypatch.setattr(runner, "planned", planned)
        result = runner.run({"n": 0}, check=True)
        assert (result.difference, result.undetermined) == (difference, undetermined)
    monkeypatch.setattr(runner, "planned", runner._filled[0])
    result = runner.run({"n": 2}, check=True)
    assert (result.difference, result.undetermined) == (None, None)


def test_nan_is_equal_to_itself() -> None:
    tvm.register_global_func(
        "symalloc.tests.identity", lambda x: tvm.runtime.tensor(x.numpy() * np.float32("nan")), override=True
    )
    result = Runner(MODULES.Identity).run({"n": 3}, check=True)
    assert result.difference is None


@pytest.mark.parametrize(
    ("module", "changed", "options", "problem"),
    [
        ("Calls", ("", ""), {"function": "looks"}, "no public function `looks`; it has main, other"),
        ("Calls", ("def main", "def first"), {}, "choose one with --function: first, other"),
        ("Cast", ("tests.head", "tests.nowhere"), {}, r"TVM cannot build the module: .*\.tests\.nowhere"),
        ("Chain", ("", ""), {"target": "no-such-target"}, "for the target 'no-such-target'"),
    ],
)
def test_what_cannot_be_built_is_said(
    module: str, changed: tuple[str, str], options: dict[str, Any], problem: str
) -> None:
    text = SCRIPT.read_text().replace(*changed)
    loaded = load_one(Path("modules.py"), data=text.encode(), module=module)
    with pytest.raises(RunError, match=problem):
        Runner(loaded, **options).run({"n": 1})


def test_several_modules_need_a_choice() -> None:
    with pytest.raises(RunError, match=r"holds \d+ modules; choose one with --module: Chain"):
        load_one(SCRIPT)


def test_a_tensor_that_a_pool_refuses_is_named() -> None:
    issue = load_one(SCRIPT.parents[2] / "examples" / "issue_17322.py")
    with pytest.raises(SymallocError, match=r"tensor `main\.alloc \(fill, .*, float32"):
        symalloc.run(issue, {"m": 5}, pool=symalloc.Pool())


# -- in a process of its own --------------------------------------------------------------------------------


def test_a_crash_is_an_error_message() -> None:
    with pytest.raises(RunError, match=r"crashed \(SIGSEGV\) while crashing"):
        call_in_child("signal:raise_signal", signal.SIGSEGV, what="crashing")


def test_a_fault_of_ours_is_no_user_error() -> None:
    with pytest.raises(RuntimeError, match="TypeError"):
        call_in_child("time:sleep", "long", what="sleeping")

"""Arguments, bindings, comparison, and jobs in a process of their own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.errors import RunError, SymallocError
from symalloc.planner.memory_report.runs import PlanKind, RunOptions
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.program.ir import Block, Function, Origin, TupleValue, Var
from symalloc.program.types import (
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
)
from symalloc.relax.files.load import load_one
from symalloc.relax.run.inputs import random_arguments
from symalloc.relax.run.runner import Runner, sweep
from symalloc.relax.workers.worker_pool import call_in_child
from symalloc.size.expr import Expr, constant, floordiv, symbol
from tests.relax.built import MODULES, SCRIPT, graph

FLOAT, INT = DType("float32", 32), DType("int64", 64)


def tensor(*shape: Expr | int, dtype: DType = FLOAT) -> TensorType:
    return TensorType(shape=tuple(e if isinstance(e, Expr) else constant(e) for e in shape), dtype=dtype)


def function(*types: Type, **origins: Origin) -> Function:
    nothing = TupleValue(())
    return Function(
        name="f",
        params=tuple(Var(f"p{i}", kind) for i, kind in enumerate(types)),
        body=Block(instructions=(), result=nothing),
        result_type=TupleType(fields=()),
        symbols=origins,
    )


N, M = symbol("n"), symbol("m")


def test_arguments_are_the_same_for_the_same_seed() -> None:
    f = function(tensor(N, 4), n=Origin.DIMENSION)
    (one,), (again,), (other,) = (random_arguments(f, {"n": 3}, seed=s) for s in (7, 7, 8))
    assert isinstance(one, np.ndarray) and isinstance(again, np.ndarray) and isinstance(other, np.ndarray)
    assert one.tobytes() == again.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("binding", "problem"),
    [
        ({}, r"no value for `batch`, `n`; add --bind batch=128 --bind n=128"),
        ({"n": 1}, r"no value for `batch`"),
        (
            {"n": 1, "batch": 1, "batsch": 1},
            r"`batsch` is no symbol .*; did you mean `batch`\?",
        ),
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
        (OpaqueType(), ", an object: one public function"),
        (TensorType(shape=None, dtype=FLOAT, ndim=2), ": its type leaves its shape open"),
        (TensorType(shape=(N,), dtype=None), ": its type leaves its element type open"),
        (ShapeType(values=None, ndim=2), ": its type leaves its shape open"),
        (ScalarType(value=None, dtype=DType("int64", 64)), ": its type leaves its value open"),
        (FunctionType(), ": it is a function"),
        (StorageType(), ": it is memory that no tensor describes"),
    ],
)
def test_a_parameter_that_its_type_leaves_open_is_refused(kind: Type, why: str) -> None:
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
    ("module", "options", "problem"),
    [
        ("Calls", {"function": "looks"}, "no public function `looks`; it has main, other"),
        ("Cast", {}, r"TVM cannot build the module: .*symalloc\.tests\.nowhere"),
        (
            "Chain",
            {"target": "no-such-target"},
            "for the target 'no-such-target'",
        ),
    ],
)
def test_what_cannot_be_built_is_said(module: str, options: dict[str, Any], problem: str) -> None:
    loaded = getattr(MODULES, module)
    if module == "Cast":
        text = SCRIPT.read_text().replace("symalloc.tests.head", "symalloc.tests.nowhere")
        loaded = load_one(Path("modules.py"), data=text.encode(), module=module)
    with pytest.raises(RunError, match=problem):
        Runner(loaded, **options).run({"n": 1})


def test_several_functions_need_a_choice() -> None:
    text = SCRIPT.read_text().replace("def main(x", "def first(x")
    module = load_one(Path("modules.py"), data=text.encode(), module="Calls")
    with pytest.raises(RunError, match="choose one with --function: first, other"):
        Runner(module)


def test_several_modules_need_a_choice() -> None:
    with pytest.raises(RunError, match=r"holds \d+ modules; choose one with --module: Chain"):
        load_one(SCRIPT)


# -- on a pool ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ("symalloc", "tvm", "none"))
def test_a_pool_is_used_and_counted(plan: PlanKind) -> None:
    pool = InstrumentedPool()
    runner = Runner(MODULES.Chain, plan=plan, pool=pool)
    result = runner.run({"n": 3}, check=True, repeat=4)
    assert result.difference is None and result.pool is not None and result.plan == plan
    # and once a shape heap, unless an earlier machine at this address has left one
    assert result.pool.allocations - 4 * (2 if plan == "symalloc" else 3) in (0, 1)
    assert result.pool.calls == 4 and result.pool.ratio > 1


def test_a_sweep_goes_through_all_bindings_in_turns() -> None:
    bindings = [{"n": n} for n in (81_003, 1, 81_007)]  # extents that TVM has kept no memory for
    runner = Runner(MODULES.Chain, pool=InstrumentedPool())
    report = sweep(runner, bindings, RunOptions(repeat=2, check=True, compare=True))
    assert report.ok and [r.binding for r in report.results] == bindings
    assert all(len(r.seconds) == 2 and r.checked for r in report.results)
    assert report.pool is not None and report.pool.calls == 6
    assert report.peer is not None and len(report.peer.seconds) == 3 and report.peer.reserved > 0


def test_what_a_pool_refuses_ends_a_sweep() -> None:
    issue = load_one(SCRIPT.parents[2] / "examples" / "issue_17322.py")
    report = sweep(Runner(issue, pool=InstrumentedPool()), [{"m": m} for m in (3, 4, 5, 1025)])
    assert not report.ok and report.refused_at == {"m": 5} and len(report.results) == 2
    assert report.refused is not None and report.refused.startswith("tensor `main.alloc (fill, ")
    assert "issue_17322.py:18)`, float32[5], " in report.refused
    with pytest.raises(SymallocError, match=r"tensor `main\.alloc \(fill, .*, float32"):
        symalloc.run(issue, {"m": 5}, pool=symalloc.Pool())


# -- in a process of its own --------------------------------------------------------------------------------


@pytest.mark.real_process
def test_a_job_answers_from_another_process() -> None:
    assert call_in_child("os:getpid", what="asking") != os.getpid()


def test_a_crash_is_an_error_message() -> None:
    with pytest.raises(RunError, match=r"crashed \(SIGSEGV\) while crashing"):
        call_in_child("signal:raise_signal", signal.SIGSEGV, what="crashing")


def test_a_fault_of_ours_is_no_user_error() -> None:
    with pytest.raises(RuntimeError, match="TypeError"):
        call_in_child("time:sleep", "long", what="sleeping")

"""Calls that the virtual machine need not make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.relax.passes.canonical_kernels import NameTensors
from symalloc.relax.passes.pipeline import KillOnPaths, finishing_pipeline, pipeline
from symalloc.relax.passes.sizes_and_guards import GatherSizes
from symalloc.relax.run.machine import memory_cfg
from tests.relax.built import MODULES, calls

PASSES = relax.transform


_LONG = """
@I.ir_module
class Long:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        a = R.add(x, x)
        b = R.add(a, a)
        c = R.add(b, b)
        d = R.add(c, c)
        return d
"""


def machine(given: str | tvm.IRModule, *, trimmed: bool) -> relax.VirtualMachine:
    """TVM's own passes, with or without ours among them."""
    passes = [
        PASSES.LegalizeOps(),
        PASSES.RewriteDataflowReshape(),
        PASSES.ToNonDataflow(),
        PASSES.RemovePurityChecking(),
        PASSES.CallTIRRewrite(),
        PASSES.LowerAllocTensor(),
        *([] if trimmed else [PASSES.KillAfterLastUse()]),
        PASSES.LowerRuntimeBuiltin(),
        *([GatherSizes()] if trimmed else []),
        PASSES.ComputePrimValue(),
        PASSES.VMShapeLower(),
        *([KillOnPaths()] if trimmed else []),
        PASSES.AttachGlobalSymbol(),
    ]
    module = getattr(MODULES, given) if isinstance(given, str) else given
    built = relax.build(module, "llvm", relax_pipeline=tvm.transform.Sequential(passes))
    return relax.VirtualMachine(built, tvm.cpu())


def given(name: str, rows: int, flag: bool) -> list[Any]:
    shapes = {"Chain": [(rows, 8)], "Branches": [(), (rows, 8)], "Nested": [(), (), (rows,)]}[name]
    values = np.random.default_rng(rows)
    return [tvm.runtime.tensor(values.random(s, dtype="float32") if s else np.array(flag)) for s in shapes]


@pytest.mark.parametrize("name", ["Chain", "Branches", "Nested"])
@pytest.mark.parametrize("flag", [True, False])
def test_results_stay_and_calls_become_fewer(name: str, flag: bool) -> None:
    plain, trimmed = machine(name, trimmed=False), machine(name, trimmed=True)
    for rows in (1, 9):
        arguments = given(name, rows, flag)
        assert plain["main"](*arguments).numpy().tobytes() == trimmed["main"](*arguments).numpy().tobytes()
    before, after = (calls(m, *given(name, 5, flag)) for m in (plain, trimmed))
    assert after["vm.builtin.make_shape"] < before["vm.builtin.make_shape"]
    kernels = {n: c for n, c in before.items() if not n.startswith("vm.builtin")}
    assert {n: after[n] for n in kernels} == kernels


def test_each_shape_is_made_once() -> None:
    found = calls(machine("Chain", trimmed=True), *given("Chain", 5, True))
    assert found["vm.builtin.make_shape"] == 2  # of the tensors, and of their storages in bytes


def test_kills_stay_where_something_is_allocated_behind_them() -> None:
    module = tvm.script.from_source(_LONG)
    plain, trimmed = (calls(machine(module, trimmed=t), *given("Chain", 5, True)) for t in (False, True))
    assert trimmed["vm.builtin.null_value"] == 4 < plain["vm.builtin.null_value"]


def test_arguments_in_a_tuple_are_renewed_too() -> None:
    """A builtin that is given the machine has its arguments in a tuple; the size is read once."""
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    with builder.function("main", [relax.Var("x", relax.TensorType((n,), "float32"))], pure=False):
        size = relax.ShapeExpr([n * 4])
        storages = [builder.emit(relax.op.memory.alloc_storage(size, 0, "global", "uint8")) for _ in range(2)]
        shape = relax.ShapeExpr([n])
        first, second = (
            builder.emit(relax.op.memory.alloc_tensor(storage, 0, shape, "float32")) for storage in storages
        )
        builder.emit_func_output(relax.Tuple([first, second]))
    memory_cfg(InstrumentedPool())
    built = relax.build(NameTensors()(builder.get()), "llvm", relax_pipeline=finishing_pipeline("llvm"))
    first, second = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(np.ones(3, "float32")))
    assert first.shape == second.shape == (3,)


_YIELDS = """
@I.ir_module
class Yields:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")) -> R.Tuple(
        R.Tensor(("n",), "float32"), R.Tuple(R.Shape(["n"]), R.Shape(["n"]))
    ):
        n = T.int64()
        y = R.add(x, x)
        first = R.shape([n])
        both = (first, R.shape([n]))
        if c:
            chosen = (R.add(y, y), both)
        else:
            chosen = (y, (both[1], R.shape([n])))
        return chosen

    @R.function
    def plain(x: R.Tensor(("n",), "float32")) -> R.Tuple(R.Tensor(("n",), "float32"), R.Shape(["n"])):
        n = T.int64()
        y = R.add(x, x)
        return (R.add(y, y), R.shape([n]))
"""


@pytest.mark.parametrize("flag", [True, False])
def test_shapes_in_tuples_are_those_made_first(flag: bool) -> None:
    """A shape in a result, or in a tuple, was left without the call that makes it."""
    built = relax.build(tvm.script.from_source(_YIELDS), "llvm", relax_pipeline=pipeline("llvm"))
    machine, x = relax.VirtualMachine(built, tvm.cpu()), tvm.runtime.tensor(np.ones(3, "float32"))
    y, shapes = machine["main"](x, tvm.runtime.tensor(np.array(flag)))
    assert (y.numpy() == (4 if flag else 2)).all() and [tuple(shape) for shape in shapes] == [(3,), (3,)]
    y, shape = machine["plain"](x)
    assert (y.numpy() == 4).all() and tuple(shape) == (3,)

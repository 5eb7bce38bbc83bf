"""Calls that the virtual machine need not make."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.relax.passes.canonical_kernels import NameTensors
from symalloc.relax.passes.pipeline import finishing_pipeline, lower, pipeline
from symalloc.relax.run.machine import memory_cfg
from tests.relax.built import calls, graph, lowered, machine, rows


def test_each_shape_is_made_once() -> None:
    found = calls(machine(lowered("Chain")), tvm.runtime.tensor(rows(5, 8)))
    assert found["vm.builtin.make_shape"] == 2  # of the tensors, and of their storages in bytes


def test_kills_stay_where_something_is_allocated_behind_them() -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        return reduce(lambda one, _: emit(relax.op.add(one, one)), range(4), x)

    found = calls(machine(lower(graph(write, x=("n", 8)), "llvm")), tvm.runtime.tensor(rows(5, 8)))
    assert found["vm.builtin.null_value"] == 4


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
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        n = T.int64()
        y = R.add(x, x)
        both = (R.shape([n]), R.shape([n]))
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

"""A forward and backward pair, step after step, on a pool: its memory returns to where it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.relax.passes.pipeline import pipeline
from symalloc.relax.run.machine import memory_cfg

STEPS, WIDTH = 200, 16


def _pair() -> tvm.IRModule:
    """`loss` of a layer and its square, `loss_adjoint`, which gives gradients too, and `nothing`."""
    builder, batch = relax.BlockBuilder(), tvm.tirx.Var("batch", "int64")
    x = relax.Var("x", relax.TensorType((batch, WIDTH), "float32"))
    w = relax.Var("w", relax.TensorType((WIDTH, WIDTH), "float32"))
    with builder.function("loss", [x, w]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, w))))
            squares = builder.emit(relax.op.multiply(hidden, hidden))
            result = builder.emit_output(relax.op.sum(squares))
        builder.emit_func_output(result)
    with builder.function("nothing", []):
        builder.emit_func_output(relax.Tuple([]))
    return relax.transform.Gradient("loss")(builder.get())


@pytest.mark.parametrize("planned", (False, True))
def test_memory_returns_to_the_baseline_after_each_of_200_steps(planned: bool) -> None:
    chosen: dict[str, Any] = {"relax_pipeline": pipeline("llvm")} if planned else {}
    program = relax.build(_pair(), target="llvm", **chosen)
    pool = InstrumentedPool()
    ours = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=memory_cfg(pool))
    stock = relax.VirtualMachine(program, tvm.cpu())
    source = np.random.default_rng(0)
    weights = source.standard_normal((WIDTH, WIDTH)).astype("float32")
    other = weights.copy()
    for _ in range(STEPS):
        x = tvm.runtime.tensor(source.standard_normal((source.integers(1, 64), WIDTH)).astype("float32"))
        weights, other = _stepped(ours, x, weights), _stepped(stock, x, other)
        assert np.array_equal(weights, other)
        ours["nothing"]()  # a machine keeps its last result
        assert pool.statistics().live == 0
    pool.trim()
    assert pool.reserved == 0


def _stepped(machine: relax.VirtualMachine, x: Any, weights: np.ndarray) -> np.ndarray:
    """The weights after a step: forward, backward, update."""
    w = tvm.runtime.tensor(weights)
    machine["loss"](x, w)
    _, gradients = machine["loss_adjoint"](x, w)
    changed: np.ndarray = weights - np.float32(1e-4) * gradients[1].numpy()
    return changed

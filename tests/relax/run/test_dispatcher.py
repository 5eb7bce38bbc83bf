"""Plans run on several threads: the same bits, memory as planned, nothing left where a kernel fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import symalloc
from benchmarks.dispatcher import on_threads
from symalloc.relax.extract import extract
from symalloc.relax.run.inputs import random_arguments
from symalloc.relax.run.machine import _arrays, _Taking
from tests.relax import modules_of_callers as modules

CASES = {"Branch": {"n": 9, "m": 4}, "Calls": {"n": 5}, "Late": {"n": 6, "m": 3}, "Constants": {"n": 4}}


@pytest.mark.parametrize("name", CASES)
def test_threads_give_the_same_bits(name: str) -> None:
    threads, machine = on_threads(getattr(modules, name), 3)
    function = extract(getattr(modules, name), name="module").functions["main"]
    for seed in range(3):
        taking = _Taking(machine)
        arguments = [taking(one) for one in random_arguments(function, CASES[name], seed)]
        found, expected = _arrays(threads(*arguments)), _arrays(machine["main"](*arguments))
        assert [a.tobytes() for a in found] == [a.tobytes() for a in expected]


def wide() -> tvm.IRModule:
    """Chains side by side, one of which has a kernel that fails where the first element is negative."""
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    kind = relax.TensorType((n, 16), "float32")
    x = relax.Var("x", kind)
    with builder.function("main", [x]):
        with builder.dataflow():
            ends = []
            for index in range(4):
                one = builder.emit(relax.op.exp(x))
                if index == 2:
                    one = builder.emit(relax.op.call_dps_packed("tests.dispatcher.fails", (one,), kind))
                ends.append(builder.emit(relax.op.nn.softmax(one)))
            total = ends[0]
            for end in ends[1:]:
                total = builder.emit(relax.op.add(total, end))
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.finalize()


def test_a_kernel_that_fails_leaves_nothing() -> None:
    fails = [False]

    def kernel(x: Any, y: Any) -> None:
        if fails[0]:
            raise ValueError("planted")
        np.from_dlpack(y)[:] = np.from_dlpack(x)

    tvm.register_global_func("tests.dispatcher.fails", kernel, override=True)
    pool, x = symalloc.Pool(), tvm.runtime.tensor(np.ones((50, 16), "float32"))
    threads, machine = on_threads(wide(), 2, pool=pool)
    for planted in (False, True, False):
        fails[0] = planted
        with symalloc.pool.statistics(pool) as scope:
            if planted:
                with pytest.raises(ValueError, match="planted"):
                    threads(x)
            else:
                found = np.from_dlpack(threads(x)).tobytes()
                assert found == machine["main"](x).numpy().tobytes()
        arenas = sum(arena.size.evaluate({"n": 50}) for arena in threads.plan.arenas)
        assert scope.peak_live <= arenas + 50 * 16 * 4
        assert pool.statistics().live == 0

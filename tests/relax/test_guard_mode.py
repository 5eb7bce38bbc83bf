"""Programs on a pool in guard mode."""

from __future__ import annotations

import re
import signal
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import OverrunError
from symalloc.relax.passes.canonical_kernels import NameTensors
from symalloc.relax.run.machine import memory_cfg
from tests.pool.processes import died
from tests.scale import tries

TRIES = tries(12, 100)


@I.ir_module
class OneTooMany:
    """Two tensors in one storage; the kernel writes one float too many."""

    @T.prim_func
    def fill(out: T.handle):  # noqa: N805
        m = T.int64()
        a = T.match_buffer(out, (m,), "float32")
        for i in range(m + 1):
            a[i] = T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):  # noqa: N805
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([8192]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        small = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        other = R.memory.alloc_tensor(storage, R.prim_value(4096), R.shape([m]), R.dtype("float32"))
        OneTooMany.fill(small)
        return other


def _try(machine: Any, pool: InstrumentedPool, m: int) -> str:
    """What is said of a call with `m` floats."""

    def call() -> None:
        result = machine["main"](tvm.runtime.tensor(np.zeros(m, "float32")))
        del result
        with pytest.raises(OverrunError):
            pool.check()

    status, said = died(call)
    # a protected page follows 64-byte steps; else the canaries tell
    assert status == (-signal.SIGSEGV if m % 16 == 0 else 0), said
    return said


def test_one_float_too_many_is_named_at_byte_0_every_time() -> None:
    pool = InstrumentedPool(guard=True)
    program = relax.build(NameTensors()(OneTooMany), target="llvm")
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=memory_cfg(pool))
    tensor = r"`main\.small \(fill, .*test_guard_mode\.py:\d+\)`"
    named = re.compile(rf"symalloc: {tensor} of (\d+) bytes (is|was) overrun: byte 0 past its end")
    found = [named.search(_try(machine, pool, m)) for m in range(1, TRIES + 1)]
    assert [int(f[1]) for f in found if f is not None] == [4 * m for m in range(1, TRIES + 1)]

"""Ordinary models on a pool beside TVM's pooled allocator: the same bits, call after call.

`python -m tests.models.pooled [CALLS]` makes 500 calls of each model at changing sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from tvm import relax

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.relax.passes.pipeline import pipeline
from symalloc.relax.run.machine import memory_cfg
from tests.models.execution import public_function, random_inputs, tensors_in
from tests.models.zoo import MODELS

# models whose symbols may have any value, all the same
FREE = ("mlp_dynamic_batch", "bert", "llama_grouped_queries", "mixture_of_experts", "gru", "nested_tuples")


def differing(name: str, calls: int, *, planned: bool, guard: bool = False) -> Iterator[int]:
    """The numbers of those among `calls` calls whose results differ from TVM's own."""
    module = MODELS[name].build()
    function = public_function(module)
    stock = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu(), memory_cfg="pooled")
    chosen: dict[str, Any] = {"relax_pipeline": pipeline("llvm")} if planned else {}
    pool = InstrumentedPool(guard=guard)
    ours = relax.VirtualMachine(relax.build(module, "llvm", **chosen), tvm.cpu(), memory_cfg=memory_cfg(pool))
    source = np.random.default_rng(0)
    for call in range(calls):
        sizes = _Same(int(source.integers(1, 24)))
        arguments = random_inputs(module[function], sizes, seed=call)
        results = [[t.numpy().tobytes() for t in tensors_in(m[function](*arguments))] for m in (ours, stock)]
        if results[0] != results[1]:
            yield call
    pool.check()


class _Same(dict[str, int]):
    """The same size for every symbol."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def get(self, name: str, default: Any = None) -> int:
        return self.size


def main() -> int:
    """Report each model; 1 where a result differs."""
    calls, wrong = int(sys.argv[1]) if len(sys.argv) > 1 else 500, 0
    for name in FREE:
        for planned in (False, True):
            found = list(differing(name, calls, planned=planned))
            wrong += len(found)
            words = "planned by symalloc" if planned else "as TVM builds it"
            print(f"{name:24} {words:20} {calls} calls, {len(found)} differ", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Random kernels that keep numbers in buffers of their own: what is read of them, beside execution."""

from __future__ import annotations

from tvm.script import from_source

from symalloc.relax.extract.kernel_body import extract_kernel
from tests.kernels.random_bodies import random_scalar_kernel
from tests.kernels.test_kernels import compare, executed
from tests.scale import tries

SIZES = (1, 2, 5)


def test_numbers_are_those_that_are_executed() -> None:
    stores = known = 0
    for seed in range(tries(40, 3000)):
        function = from_source(random_scalar_kernel(seed))["work"]
        kernel = extract_kernel("work", function)
        counted = [a for a in kernel.accesses if all(loop.passes is not None for loop in a.loops)]
        stores += sum(a.kind == "store" for a in kernel.accesses)
        known += sum(a.kind == "store" and None not in a.indices for a in counted)
        if len(counted) < len(kernel.accesses):
            continue
        for size in SIZES:
            run = executed(function, {"n": size})
            if run is not None:
                compare(seed, kernel, {"n": size}, run)
    assert stores > known > stores // 3

"""Random kernels that leave loops early, or keep numbers in buffers of their own: what is read of them, and
said of them, beside execution.
"""

from __future__ import annotations

import pytest
from tvm.script import from_source

from symalloc.relax.extract.kernel_body import extract_kernel
from tests.kernels.element_kernels import ElementKernel
from tests.kernels.element_verdicts import judged
from tests.kernels.random_bodies import random_module, random_scalar_kernel
from tests.kernels.test_kernels import compare, executed
from tests.scale import NIGHTLY, tries


@pytest.mark.parametrize("seed", range(600 if NIGHTLY else 16))
def test_execution_contradicts_no_finding(seed: int) -> None:
    script = random_module(seed)
    function = from_source(script)["work"]
    kernel = extract_kernel("work", function)
    for size in (1, 3, 4):
        run = executed(function, {"n": size})
        assert run is not None
        compare(seed, kernel, {"n": size}, run)
    if "a[0]" not in script:  # what data decide is not verified
        assert not judged(ElementKernel(script, True, ("work",))).wrong, script


def test_numbers_are_those_that_are_executed() -> None:
    stores = known = 0
    for seed in range(tries(40, 3000)):
        function = from_source(random_scalar_kernel(seed))["work"]
        kernel = extract_kernel("work", function)
        counted = [a for a in kernel.accesses if all(loop.passes is not None for loop in a.loops)]
        stores += sum(a.kind == "store" for a in kernel.accesses)
        known += sum(a.kind == "store" and None not in a.indices for a in counted)
        for size in (1, 2, 5) if len(counted) == len(kernel.accesses) else ():
            run = executed(function, {"n": size})
            if run is not None:
                compare(seed, kernel, {"n": size}, run)
    assert stores > known > stores // 3

"""Random kernels, shrunk: the same bits on every target, and no fault planted in one is taken for right."""

from __future__ import annotations

import pytest

from symalloc.relax.passes.pipeline import lower
from symalloc.relax.shrink.kernel_stages import same_results
from tests.relax.shrink.compared import different, faulty, shrunk, targets
from tests.relax.shrink.random_chains import random_chains
from tests.scale import tries


@pytest.mark.parametrize("seed", range(tries(1, 20)))
def test_shrunk_kernels_give_the_same_bits(seed: int) -> None:
    chains = random_chains(seed, 8)
    for target in targets():
        lowered = lower(chains.module, target, pipeline="target")
        after = {level: shrunk(lowered, level)[0] for level in ("safe", "full")}
        assert different(lowered, after, chains.binding, target, chains.names) == []


@pytest.mark.parametrize("seed", range(tries(1, 20)))
def test_planted_faults_are_refused(seed: int) -> None:
    lowered = lower(random_chains(seed, 8).module, "llvm", pipeline="target")
    after, changed = shrunk(lowered, "full")
    planted = 0
    for name in changed:
        assert same_results(lowered[name], after[name])
        assert not same_results(lowered[name].without_attr("tirx.noalias"), after[name]), "a promise left in"
        for fault, kernel in faulty(after[name]):
            assert not same_results(lowered[name], kernel), f"{name}: {fault}\n{kernel.script()}"
            planted += 1
    assert planted > 50

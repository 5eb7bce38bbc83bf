from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from symalloc.pool.replaying import BestFit, ExactSize
from tests.pool.steps import STEPS, Step

MIB = 2**20


@pytest.mark.parametrize("kind", (ExactSize, BestFit))
@given(steps=STEPS)
def test_live_blocks_are_disjoint_and_reserved(kind: type[ExactSize | BestFit], steps: list[Step]) -> None:
    peer = kind()
    live: dict[int, int] = {}
    for step in steps:
        address = peer.alloc(step.nbytes)
        assert address not in live
        live[address] = step.nbytes
        for _ in range(min(step.frees, len(live))):
            freed = list(live)[step.pick % len(live)]
            peer.free(freed)
            del live[freed]
        spans = sorted((a, a + n) for a, n in live.items())
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert all(end <= peer.reserved for _, end in spans)


def test_exact_sizes_serve_only_their_own() -> None:
    peer = ExactSize()
    peer.free(peer.alloc(8192))
    peer.alloc(4096)
    assert peer.reserved == 12288
    peer.alloc(8000)
    assert peer.reserved == 12288


def test_best_fit_splits_and_merges_segments() -> None:
    peer = BestFit()
    first, second = peer.alloc(6 * MIB), peer.alloc(6 * MIB)
    assert peer.reserved == 20 * MIB
    peer.free(first)
    peer.free(second)
    assert peer.alloc(18 * MIB) == first, "the two halves and the rest are one again"
    assert peer.reserved == 20 * MIB
    peer.alloc(100)
    assert peer.reserved == 22 * MIB, "small blocks have segments of their own"


def test_best_fit_takes_the_smallest_that_fits() -> None:
    peer = BestFit()
    large, small = peer.alloc(40 * MIB), peer.alloc(30 * MIB)
    peer.free(large)
    peer.free(small)
    assert peer.alloc(29 * MIB + 1) == small

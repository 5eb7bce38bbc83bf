from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.reference.reference_pool import ReferencePool
from tests.pool.steps import STEPS, Step

KIB, MIB = 2**10, 2**20
SMALL = 2**26  # of a range
OPTIONS = st.builds(
    PoolOptions,
    soft_limit=st.sampled_from((None, Fraction(1), Fraction(11, 10), Fraction(3, 2), 0, 2 * MIB)),
    limit=st.sampled_from((None, None, 4 * MIB, 16 * MIB)),
    page=st.sampled_from((4 * KIB, 64 * KIB)),
    bin_capacity=st.sampled_from((0, 128 * KIB, 1024 * KIB)),
    capacity=st.just(SMALL),
)


def _rounded(nbytes: int) -> int:
    return max(-(-nbytes // 64) * 64, 64)


def _pages_of(live: dict[int, int], page: int) -> set[int]:
    return {p for a, n in live.items() for p in range(a // page, (a + _rounded(n) - 1) // page + 1)}


def _disjoint(live: dict[int, int]) -> bool:
    spans = sorted((a, a + _rounded(n)) for a, n in live.items())
    return all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def _run(pool: ReferencePool, steps: list[Step]) -> dict[int, int]:
    """Does `steps`, checking after each what must always hold; what is live at the end."""
    live: dict[int, int] = {}
    options = pool.options
    for step in steps:
        before = pool.used
        try:
            address = pool.alloc(step.nbytes, align=step.align)
        except OutOfMemoryError:
            assert options.limit is not None
            assert pool.used <= before
        else:
            assert address % max(step.align, 64) == 0
            live[address] = step.nbytes
        for _ in range(min(step.frees, len(live))):
            freed = list(live)[step.pick % len(live)]
            pool.free(freed)
            del live[freed]
        _check(pool, live)
    return live


def _check(pool: ReferencePool, live: dict[int, int]) -> None:
    options = pool.options
    assert _disjoint(live)
    assert options.limit is None or pool.reserved <= options.limit
    assert pool.reserved >= len(_pages_of(live, options.page)) * options.page
    held = pool.used - sum(map(_rounded, live.values()))
    most = options.bin_capacity + max(2 * options.bin_capacity, pool.peak_in_use)
    assert 0 <= held <= (most if options.bin_capacity else 0), "it is in caches"


@given(OPTIONS, STEPS)
def test_blocks_are_disjoint_and_limits_hold(options: PoolOptions, steps: list[Step]) -> None:
    _run(ReferencePool(options), steps)


@given(OPTIONS, STEPS)
def test_everything_freed_is_one_hole_and_no_memory(options: PoolOptions, steps: list[Step]) -> None:
    pool = ReferencePool(options)
    for address in _run(pool, steps):
        pool.free(address)
    pool.trim()
    assert pool.free_intervals() == [(0, SMALL)]
    assert (pool.used, pool.reserved) == (0, 0)


@given(OPTIONS, STEPS)
def test_holes_are_what_is_not_live(options: PoolOptions, steps: list[Step]) -> None:
    pool = ReferencePool(options)
    live = _run(pool, steps)
    pool.flush()
    assert pool.used == sum(map(_rounded, live.values()))
    intervals = pool.free_intervals()
    pieces = sorted([*intervals, *((a, a + _rounded(n)) for a, n in live.items())])
    assert pieces[0][0] == 0
    assert pieces[-1][1] == SMALL
    assert all(e == s for (_, e), (s, _) in pairwise(pieces))
    assert all(e < s for (_, e), (s, _) in pairwise(intervals)), "neighbours are merged"


@given(STEPS)
def test_trimming_leaves_only_the_pages_of_live_blocks(steps: list[Step]) -> None:
    pool = ReferencePool(PoolOptions(capacity=SMALL, page=4 * KIB))
    live = _run(pool, steps)
    before = pool.reserved
    assert pool.trim() == before - pool.reserved
    assert pool.reserved == len(_pages_of(live, 4 * KIB)) * 4 * KIB


def test_a_soft_limit_moves_memory_out_of_holes_that_do_not_fit() -> None:
    """Every second of sixteen blocks is freed: nothing larger fits between, half of the memory is idle."""
    pool = ReferencePool(PoolOptions(soft_limit=Fraction(1), bin_capacity=0))
    blocks = [pool.alloc(MIB) for _ in range(16)]
    for block in blocks[::2]:
        pool.free(block)
    assert pool.alloc(2 * MIB) == 16 * MIB
    assert pool.reserved == 16 * MIB
    assert pool.pages.decommitted == 2 * MIB


@pytest.mark.parametrize(("backed", "fits"), ((7, 3), (6, 1)))
def test_a_soft_limit_takes_the_smallest_hole_that_is_enough_or_the_largest(backed: int, fits: int) -> None:
    """Of holes of 3, 1 and 2 MiB two are wanted, or three; a block of `fits` lacks nothing afterwards."""
    pool = ReferencePool(PoolOptions(soft_limit=(backed + 4) * MIB, bin_capacity=0))
    blocks = [pool.alloc(n * MIB) for n in (3, 1, 1, 1, 2, 1)]
    for block in blocks[::2]:
        pool.free(block)
    pool.alloc(4 * MIB)
    decommitted = pool.pages.decommitted
    assert decommitted == (9 - backed) * MIB
    committed = pool.pages.committed
    assert pool.alloc(fits * MIB) == (0 if fits == 3 else 4 * MIB)
    assert pool.pages.committed == committed


def test_at_the_soft_limit_the_smallest_hole_serves_whose_pages_are_backed() -> None:
    pool = ReferencePool(PoolOptions(soft_limit=10 * MIB))
    lowest, _, larger, _, smaller, _ = (pool.alloc(n * MIB) for n in (2, 1, 3, 1, 1, 1))
    waits = pool.alloc(32 * KIB)
    pool.free(lowest)
    pool.alloc(4 * MIB)  # the lowest hole loses its pages
    decommitted = pool.pages.decommitted
    assert decommitted == 2 * MIB
    for block in (larger, smaller, waits):
        pool.free(block)
    assert pool.alloc(MIB) == smaller
    assert pool.alloc(32 * KIB) == waits, "bins are not emptied for it"
    assert pool.pages.decommitted == decommitted


def test_at_the_soft_limit_a_block_lies_where_pages_of_a_hole_are_backed() -> None:
    """Of a hole of 3 MiB only the middle one is backed."""
    pool = ReferencePool(PoolOptions(soft_limit=4 * MIB, bin_capacity=0))
    low, middle, high, _ = (pool.alloc(MIB) for _ in range(4))
    for block in (low, high):
        pool.free(block)
    pool.alloc(2 * MIB)
    pool.free(middle)
    assert pool.alloc(MIB) == middle
    assert pool.pages.decommitted == 2 * MIB


@pytest.mark.parametrize("page", (64 * KIB, 4 * KIB))
def test_a_soft_limit_that_is_clearly_exceeded_takes_what_is_free_within_pages(page: int) -> None:
    """Between blocks of 40 KiB lie holes of as much: some 9 of the system's pages each."""
    pool = ReferencePool(PoolOptions(soft_limit=Fraction(1), bin_capacity=0, page=page))
    blocks = [pool.alloc(40 * KIB) for _ in range(500)]
    for block in blocks[::2]:
        pool.free(block)
    full = pool.reserved
    taken = [pool.alloc(41 * KIB) for _ in range(200)]
    assert min(taken) >= 500 * 40 * KIB
    assert pool.peak_reserved <= full + 2 * MIB + 64 * KIB
    assert pool.pages.decommitted > 200 * 41 * KIB - 3 * MIB


def test_without_a_soft_limit_holes_keep_their_memory() -> None:
    pool = ReferencePool(PoolOptions(soft_limit=None))
    blocks = [pool.alloc(MIB) for _ in range(16)]
    for block in blocks[::2]:
        pool.free(block)
    pool.alloc(2 * MIB)
    assert pool.reserved == 18 * MIB
    assert pool.pages.decommits == 0


def test_the_limit_does_not_fail_while_free_pages_can_serve() -> None:
    pool = ReferencePool(PoolOptions(soft_limit=None, limit=16 * MIB))
    blocks = [pool.alloc(MIB) for _ in range(16)]
    for block in blocks[::2]:
        pool.free(block)
    big = pool.alloc(8 * MIB)
    with pytest.raises(OutOfMemoryError, match="16777216 are in use"):
        pool.alloc(1)
    pool.free(big)
    pool.alloc(1)


def test_a_failed_allocation_changes_nothing_that_is_live() -> None:
    pool = ReferencePool(PoolOptions(limit=MIB))
    kept = pool.alloc(MIB // 2)
    intervals = pool.free_intervals()
    with pytest.raises(OutOfMemoryError, match="do not fit under the limit of 1048576"):
        pool.alloc(MIB)
    assert pool.free_intervals() == intervals
    pool.free(kept)
    pool.alloc(MIB)


def test_address_space_is_bounded_too() -> None:
    pool = ReferencePool(PoolOptions(capacity=MIB))
    with pytest.raises(OutOfMemoryError, match="address space"):
        pool.alloc(MIB + 1)


def test_bins_keep_blocks_as_long_as_limits_allow() -> None:
    pool = ReferencePool()
    small = pool.alloc(32 * KIB)
    pool.free(small)
    assert pool.alloc(512 * KIB) == 32 * KIB, "what waits in a bin is not merged"
    assert pool.alloc(32 * KIB) == small


def test_bins_are_emptied_before_a_limit_is_broken() -> None:
    pool = ReferencePool(PoolOptions(soft_limit=512 * KIB))
    small = [pool.alloc(32 * KIB) for _ in range(16)]
    for block in small:
        pool.free(block)
    assert pool.alloc(512 * KIB) == small[0]
    assert pool.reserved == 512 * KIB

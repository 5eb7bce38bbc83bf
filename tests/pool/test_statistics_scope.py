from __future__ import annotations

import pytest

from symalloc.pool import statistics
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.statistics_scope import TagCount
from tests.pool.processes import at_once

pytestmark = pytest.mark.usefixtures("native")

KIB, MIB = 2**10, 2**20
UNBINNED = PoolOptions(bin_capacity=0)


def test_what_happens_within_is_counted_by_tag() -> None:
    pool = InstrumentedPool(UNBINNED)
    before = pool.alloc(MIB, tag="old")
    with statistics(pool) as counted:
        first = pool.alloc(3 * MIB, tag="x")
        pool.free(pool.alloc(MIB, tag="x"))
        pool.free(first)
        pool.free(before)
        kept = pool.empty((10,), "int8")
        assert counted.tags[""].left == 10, "figures can be read while it goes on"
    after = pool.alloc(64 * MIB)
    assert (
        counted.tags
        == {
            "x": TagCount(allocs=2, allocated=4 * MIB, frees=2, freed=4 * MIB, left=0, peak=4 * MIB),
            "": TagCount(allocs=1, allocated=10, left=10, peak=10, frees=0, freed=0),
            "old": TagCount(frees=1, freed=MIB),
        }
        or counted.tags[""].frees == 1
    )
    assert counted.total.allocs == 3
    assert counted.peak_live == 5 * MIB
    assert (counted.peak_used, counted.peak_reserved) == (5 * MIB, 5 * MIB)
    assert counted.figures().live == 10
    pool.free(after)
    del kept


def test_peaks_are_of_the_part_alone_and_parts_may_overlap() -> None:
    pool = InstrumentedPool(UNBINNED, soft_limit=None)
    pool.free(pool.alloc(8 * MIB))
    pool.trim()
    outer, inner = statistics(pool), statistics(pool)
    first = outer.__enter__()
    pool.free(pool.alloc(4 * MIB))
    second = inner.__enter__()
    pool.free(pool.alloc(2 * MIB))
    outer.__exit__(None, None, None)
    pool.free(pool.alloc(3 * MIB))
    inner.__exit__(None, None, None)
    assert (first.peak_used, second.peak_used) == (4 * MIB, 3 * MIB)
    assert (first.peak_live, second.peak_live) == (4 * MIB, 3 * MIB)
    assert pool.statistics().peak_used == 8 * MIB, "those of the pool itself go on"


def test_small_blocks_that_wait_in_bins_are_counted_exactly() -> None:
    pool = InstrumentedPool()
    for block in [pool.alloc(KIB) for _ in range(100)]:
        pool.free(block)
    with statistics(pool) as counted:
        for block in [pool.alloc(KIB) for _ in range(70)]:
            pool.free(block)
    assert (counted.peak_live, counted.total.allocs, counted.total.left) == (70 * KIB, 70, 0)


def test_without_a_pool_it_is_all_of_them() -> None:
    one, two = InstrumentedPool(), InstrumentedPool()
    with statistics() as counted:
        blocks = one.alloc(100, tag="a"), two.alloc(50, tag="a")
    assert counted.tags["a"].allocated == 150
    assert counted.tags["a"].allocs == 2
    one.free(blocks[0])
    two.free(blocks[1])


def test_every_thread_counts() -> None:
    pool = InstrumentedPool()

    def work() -> None:
        for n in range(400):
            pool.free(pool.alloc(n, tag=f"t{n % 3}"))

    with statistics(pool) as counted:
        at_once(*[work] * 4)
    assert counted.total.allocs == counted.total.frees == 1600
    assert counted.total.allocated == counted.total.freed == 4 * sum(range(400))
    assert counted.total.left == 0
    assert set(counted.tags) == {"t0", "t1", "t2"}


def test_an_error_within_ends_the_count() -> None:
    pool = InstrumentedPool()
    with pytest.raises(KeyError), statistics(pool) as counted:
        kept = pool.alloc(8)
        raise KeyError
    pool.free(kept)
    assert counted.total == TagCount(allocs=1, allocated=8, left=8, peak=8)

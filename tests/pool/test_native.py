from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BadFreeError, OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions

pytestmark = pytest.mark.usefixtures("native")

KIB, MIB, PAGE = 2**10, 2**20, 4096


def test_handles_are_counted() -> None:
    pool = InstrumentedPool()
    handle = pool.alloc(1000, tag="weights")
    view = handle.view()
    pool.free(handle)
    assert pool.statistics().live == 1000
    assert pool.holders() == [("weights", 1000)]
    del view
    assert pool.statistics().live == 0
    assert pool.holders() == []


def test_holders_count_blocks_without_a_tag() -> None:
    pool = InstrumentedPool()
    handle, named = pool.alloc(64), pool.empty((1000,), "uint8", tag="named")
    tensors = [pool.empty((300,), "uint8") for _ in range(3)]
    assert sorted(pool.holders()) == [("", 64), ("", 900), ("named", 1000)]
    assert sum(nbytes for _, nbytes in pool.holders()) == pool.statistics().live
    assert [(h.tag, h.blocks, h.nbytes) for h in pool.leaks()] == [("named", 1, 1000), ("", 4, 964)]
    pool.free(handle)
    del named, tensors
    assert pool.holders() == []


def test_stale_and_foreign_handles_are_refused() -> None:
    pool = InstrumentedPool()
    handle = pool.alloc(64)
    pool.free(handle)
    again = pool.alloc(64)
    assert again.address == 0, "the block is in use again, under another handle"
    with pytest.raises(BadFreeError, match="stale"):
        pool.free(handle)
    for foreign in (-1, 12345, 2**62):
        with pytest.raises(BadFreeError):
            pool.free(foreign)
    assert pool.statistics().live == 64


def test_tensors_return_their_memory_and_keep_the_pool() -> None:
    pool = InstrumentedPool()
    tensor = pool.empty((3, 5), "float32")
    assert tuple(tensor.shape) == (3, 5)
    assert pool.statistics().live == 60
    del tensor
    assert pool.statistics().live == 0
    orphan = pool.empty((4,), "int64")
    del pool
    gc.collect()
    assert tuple(orphan.shape) == (4,)


def test_statistics_count_what_was_asked_for() -> None:
    pool = InstrumentedPool(replace(PoolOptions(), page=PAGE))
    handles = [pool.alloc(n) for n in (0, 1, 100)]
    counted = asdict(pool.statistics())
    assert (counted["live"], counted["used"], counted["reserved"]) == (101, 256, PAGE)
    assert (counted["allocs"], counted["frees"]) == (3, 0)
    for handle in handles:
        pool.free(handle)
    assert pool.statistics().live == 0


def test_options_by_name_go_before_those_given_as_a_whole() -> None:
    pool = InstrumentedPool(PoolOptions(limit=MIB, page=PAGE), limit=2 * MIB)
    assert pool.options == PoolOptions(limit=2 * MIB, page=PAGE, capacity=pool.options.capacity)
    with pytest.raises(OutOfMemoryError, match="limit of 2097152"):
        pool.alloc(3 * MIB)
    with pytest.raises(PoolUsageError, match="power of two"):
        InstrumentedPool(page=5000)


def test_a_handle_knows_its_block() -> None:
    pool = InstrumentedPool()
    with pool.alloc(100, tag="scratch") as block:
        assert (block.nbytes, block.tag, block.pool) == (100, "scratch", pool)
        assert pool.statistics().live == 100
    assert pool.statistics().live == 0
    uses: tuple[Callable[[], object], ...] = (
        block.free,
        lambda: block.pointer,
        lambda: block.nbytes,
        lambda: block.tag,
        lambda: pool.free(block),
        lambda: block.address,
        lambda: block.view(),
    )
    for use in uses:
        with pytest.raises(BadFreeError, match="the handle is stale: its block has been freed"):
            use()


def test_a_handle_of_another_pool_frees_nothing() -> None:
    pools = [InstrumentedPool() for _ in range(3)]
    own = [pool.alloc(100) for pool in pools]
    for pool, block in zip(pools, own[1:] + own[:1], strict=True):
        with pytest.raises(BadFreeError, match="another pool"):
            pool.free(block)
    assert [block.nbytes for block in own] == [100] * 3


def test_a_handle_that_is_dropped_keeps_its_block() -> None:
    pool = InstrumentedPool()
    pool.alloc(100, tag="dropped")
    assert [(leak.tag, leak.nbytes) for leak in pool.leaks()] == [("dropped", 100)]
    kept = pool.alloc(50)
    view = kept.view()
    kept.free()
    assert kept.nbytes == 50, "it is held once more"
    del view
    assert pool.statistics().live == 100

from __future__ import annotations

import gc
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BadFreeError, BoundsError, OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.reference.out_of_memory import OutOfMemoryReport, no_address_space
from tests.pool.reference.reference_pool import ReferencePool


def test_a_view_is_the_memory_of_the_block() -> None:
    pool = InstrumentedPool()
    with pool.alloc(64) as block:
        words = block.view("int32", (4, 4))
        words[:] = np.arange(16).reshape(4, 4)
        assert words.ctypes.data == block.pointer
        assert block.view("int32").tolist() == list(range(16))
        assert block.view().shape == (64,)
        assert block.view(np.float64, 3).shape == (3,)
        assert block.view("int8", ()).shape == ()
        assert block.view("int8", (0, 7)).size == 0
        del words
    assert pool.statistics().live == 0


def test_a_view_keeps_the_block() -> None:
    pool = InstrumentedPool()
    block = pool.alloc(800)
    part = block.view("float64")[10:20].T
    part[:] = 7
    block.free()
    assert pool.statistics().live == 800
    assert part.sum() == 70
    del block, part
    gc.collect()
    assert pool.statistics().live == 0


def test_a_view_keeps_the_pool() -> None:
    pool = InstrumentedPool()
    view = pool.alloc(8).view("int64")
    del pool
    gc.collect()
    view[0] = 5
    assert view[0] == 5


def test_a_freed_block_has_no_view() -> None:
    pool = InstrumentedPool()
    block = pool.alloc(64)
    block.free()
    with pytest.raises(BadFreeError, match="stale"):
        block.view()


def test_a_view_lies_within_the_block() -> None:
    block = InstrumentedPool().alloc(10)
    assert block.view("int32").shape == (2,)
    for dtype, shape in (("int32", 3), ("int8", 11), ("int64", (2, 2**60))):
        with pytest.raises(BoundsError, match="10 bytes of the block"):
            block.view(dtype, shape)


@pytest.mark.parametrize(
    "dtype, shape", [("O", 1), ("no", 1), ("V0", 1), ("int8", -1), ("int8", "x"), ("int8", 1.5)]
)
def test_what_is_no_dtype_or_shape_is_refused(dtype: str, shape: int) -> None:
    pool = InstrumentedPool()
    with pytest.raises(PoolUsageError), pool.alloc(64) as block:
        block.view(dtype, shape)


KIB = 2**10
PAGE = 4096


def _fits_somewhere(pool: ReferencePool, size: int, align: int, limit: int) -> bool:
    """Tries every place, all free pages having been given back; blocks share a page or two at most."""
    for start, end in pool.free_intervals():
        last = min(end - size, start + size + 64 * KIB) // align * align
        lows = range(-(-start // align) * align, last + 1, align)
        highs = range(max((end - size) // align * align - 2 * PAGE, start) // align * align, end, align)
        for offset in (*lows, *highs):
            fits = start <= offset and offset + size <= end
            if fits and pool.reserved + pool.pages.missing(offset, size, PAGE) <= limit:
                return True
    return False


@pytest.mark.parametrize("seed", range(12))
def test_nothing_fails_that_fits(seed: int) -> None:
    random = Random(seed)
    page = random.choice((PAGE, 4 * PAGE))
    limit = random.randint(3, 10) * page
    pool = ReferencePool(PoolOptions(limit=limit, page=page, bin_capacity=0, capacity=2**24))
    live: list[int] = []
    refused = 0
    for _ in range(300):
        nbytes, align = random.randint(0, 2 * page), random.choice((64, 64, 256, PAGE))
        try:
            live.append(pool.alloc(nbytes, align=align))
        except OutOfMemoryError:
            refused += 1
            size = max(-(-nbytes // 64) * 64, 64)
            assert not _fits_somewhere(pool, size, align, limit)
            live.sort(key=lambda _: random.random())
            for address in live[: len(live) // 3 + 1]:
                pool.free(address)
            del live[: len(live) // 3 + 1]
    assert refused > 5


def test_the_upper_end_of_a_hole_may_share_a_page() -> None:
    pool = ReferencePool(PoolOptions(limit=3 * PAGE, page=PAGE, bin_capacity=0))
    gap_end = 3 * PAGE + 512
    pool.options = replace(pool.options, limit=4 * PAGE)
    low, gap, high = pool.alloc(PAGE), pool.alloc(gap_end - PAGE), pool.alloc(PAGE - 512)
    pool.free(gap)
    pool.trim()
    pool.options = replace(pool.options, limit=3 * PAGE)
    size = PAGE + 256
    assert pool.alloc(size) == gap_end - size, "from its lower end it would need two pages more"
    assert pool.reserved == 3 * PAGE
    pool.free(low)
    pool.free(high)


SHORT = OutOfMemoryReport(size=4096, limit=65536, in_use=60000, reserved=65536, missing=4096, piece=640)


def test_the_text_says_what_is_missing_and_what_would_help() -> None:
    assert SHORT.text() == (
        "4096 bytes do not fit under the limit of 65536: 60000 are in use, 65536 reserved, "
        "5536 are free within pages that are in use, at most 640 of them in one piece\n"
        "  help: raise the limit by 4096 bytes, or free as much, or run at smaller shapes"
    )


def test_no_address_space() -> None:
    with pytest.raises(OutOfMemoryError) as error:
        ReferencePool(PoolOptions(capacity=64 * KIB)).alloc(64 * KIB + 1)
    assert str(error.value) == no_address_space(65600, 65536, 65536)
    assert "the largest has 65536 bytes of 65536" in str(error.value)

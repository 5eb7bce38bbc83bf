from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.reference.out_of_memory import OutOfMemoryReport, no_address_space
from tests.pool.reference.reference_pool import ReferencePool

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

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.pool.errors import OutOfMemoryError
from symalloc.pool.policy import Options, PagedPool
from symalloc.pool.shortage import Shortage, no_address_space
from tests.pool.steps import STEPS, Step

KIB = 2**10
PAGE = 4096


def _fits_somewhere(pool: PagedPool, size: int, align: int, limit: int) -> bool:
    """Tries every place, all free pages having been given back; blocks share a page or two at most."""
    for holes, pages in zip(pool.holes(), pool.pages, strict=True):
        for start, end in holes:
            last = min(end - size, start + size + 64 * KIB) // align * align
            lows = range(-(-start // align) * align, last + 1, align)
            highs = range(max((end - size) // align * align - 2 * PAGE, start) // align * align, end, align)
            for offset in (*lows, *highs):
                fits = start <= offset and offset + size <= end
                if fits and pool.reserved + pages.missing(offset, size) <= limit:
                    return True
    return False


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, limit=st.integers(2, 8), page=st.sampled_from((PAGE, 4 * PAGE)))
def test_nothing_fails_that_fits(steps: list[Step], limit: int, page: int) -> None:
    pool = PagedPool(Options(limit=limit * page, page=page, bin_capacity=0, capacity=2**24))
    live: list[int] = []
    for step in steps:
        nbytes = step.nbytes % (3 * page)
        try:
            live.append(pool.alloc(nbytes, align=step.align))
        except OutOfMemoryError:
            size = max(-(-nbytes // 64) * 64, 64)
            assert not _fits_somewhere(pool, size, max(step.align, 64), limit * page)
        for _ in range(min(step.frees, len(live))):
            pool.free(live.pop(step.pick % len(live)))


def test_the_upper_end_of_a_hole_may_share_a_page() -> None:
    pool = PagedPool(Options(limit=3 * PAGE, page=PAGE, bin_capacity=0))
    gap_end = 3 * PAGE + 512
    pool.options = replace(pool.options, limit=4 * PAGE)
    low, gap, high = pool.alloc(PAGE), pool.alloc(gap_end - PAGE), pool.alloc(512)
    pool.free(gap)
    pool.trim()
    pool.options = replace(pool.options, limit=3 * PAGE)
    size = PAGE + 256
    assert pool.alloc(size) == gap_end - size, "from its lower end it would need two pages more"
    assert pool.reserved == 3 * PAGE
    pool.free(low)
    pool.free(high)


SHORT = Shortage(size=4096, limit=65536, in_use=60000, reserved=65536, missing=4096, piece=640, page=4096)


def test_the_text_says_what_is_missing_and_what_would_help() -> None:
    assert SHORT.text() == (
        "4096 bytes do not fit under the limit of 65536: 60000 are in use, 65536 reserved, "
        "5536 are free within pages that are in use, at most 640 of them in one piece\n"
        "  help: raise the limit by 4096 bytes, or free as much, or run at smaller shapes"
    )
    assert (
        replace(SHORT, page=65536).text().endswith("; pages smaller than 65536 leave less free within them")
    )
    waiting = replace(SHORT, in_bins=5000).text()
    assert ", 5000 wait in the bins of other threads, 536 are free" in waiting
    assert "a lower bin_capacity, frees what waits there" in waiting


def test_no_address_space() -> None:
    with pytest.raises(OutOfMemoryError) as error:
        PagedPool(Options(capacity=64 * KIB)).alloc(64 * KIB + 1)
    assert str(error.value) == no_address_space(65600, 65536, 65536)
    assert "the largest has 65536 bytes of 65536" in str(error.value)

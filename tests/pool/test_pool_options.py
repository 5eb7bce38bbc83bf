"""Options of a pool, and handles of blocks."""

from __future__ import annotations

import gc
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from symalloc import ReservedBuffer
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BoundsError, OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.processes import survives
from tests.pool.reference.reference_pool import ReferencePool


@pytest.mark.parametrize(
    ("name", "given", "read"),
    (
        ("bin_capacity", "0", 0),
        ("bin_capacity", "64KiB", 65536),
        ("bin_capacity", "1.5 GiB", 3 * 2**29),
        ("bin_capacity", " 2mib ", 2**21),
        ("bin_capacity", "7B", 7),
        ("bin_capacity", "10KB", 10_000),
        ("bin_capacity", 0.0, 0),
        ("soft_limit", "1.05", Fraction(21, 20)),
        ("soft_limit", "2", Fraction(2)),
        ("soft_limit", "99.5", Fraction(199, 2)),
        ("soft_limit", "100", 100),
        ("soft_limit", "8b", 8),
        ("soft_limit", "none", None),
        ("soft_limit", 1.1, Fraction(11, 10)),
        ("soft_limit", 1e9, 10**9),
        ("soft_limit", 0, 0),
        ("soft_limit", Fraction(3, 2), Fraction(3, 2)),
        ("limit", np.int64(2**20), 2**20),
        ("capacity", None, None),
    ),
)
def test_amounts_are_read(name: str, given: Any, read: Any) -> None:
    value = getattr(PoolOptions(**{name: given}), name)
    assert value == read
    assert type(value) is type(read)


NO_AMOUNTS = ("", "-1", "1e9", "3 MX", "1.2.3", "٣", "1GiB 2", "9" * 5000, f"1.{'0' * 5000}B")
SENSELESS = (
    *(("limit", text, "no amount of memory") for text in NO_AMOUNTS),
    ("soft_limit", "little", "no amount of memory"),
    ("soft_limit", 0.9, "cannot be held"),
    ("soft_limit", float("inf"), "whole number of bytes"),
    ("soft_limit", -1, "from 0"),
    ("soft_limit", 2**63, "from 0"),
    ("soft_limit", Fraction(2**70, 3), "beyond 64 bits"),
    ("limit", "9" * 30, "more memory than there can be"),
    ("limit", 1.5, "whole number of bytes"),
    ("limit", 65535, "holds no page"),
    ("page", 2048, "from 4096"),
    ("page", 5000, "power of two"),
    ("page", 2**62, "from 4096"),
    ("bin_capacity", 2**62, "from 0"),
    ("bin_largest", 65537, "from 0 to 65536 bytes"),
    ("capacity", 0, "from 1"),
    ("capacity", 2**62, "from 1"),
    ("capacity", 2**20 + 1, "whole pages"),
)


@pytest.mark.parametrize(("name", "given", "says"), SENSELESS)
def test_options_that_make_no_sense_are_told(name: str, given: Any, says: str) -> None:
    with pytest.raises(PoolUsageError, match=says) as refused:
        InstrumentedPool(PoolOptions(**{name: given}))
    assert len(str(refused.value)) < 200


def test_options_of_the_native_pool_alone() -> None:
    with pytest.raises(PoolUsageError, match="a pool has no option `limt`; did you mean 'limit'"):
        InstrumentedPool(limt=3)  # type: ignore[call-arg]
    with pytest.raises(PoolUsageError, match="two limits are given"):
        InstrumentedPool("1GiB", limit=3)


@pytest.mark.parametrize("limit", ("2MiB", 2**21, 2.0**21))
def test_a_limit_alone_makes_a_pool(limit: float | str) -> None:
    assert InstrumentedPool(limit).options.limit == 2**21


def test_pages_follow_and_the_address_stays() -> None:
    buffer = ReservedBuffer("16MiB")
    address = buffer.address
    assert address % 4096 == 0
    for nbytes in (0, 1, 4096, 4097, 1 << 24, 3 << 20, 5, 0):
        tensor = buffer.tensor(nbytes)
        assert (buffer.address, buffer.nbytes, tuple(tensor.shape)) == (address, nbytes, (nbytes,))
        assert buffer.reserved == max(-(-nbytes // 4096), 1) * 4096
        if nbytes:
            np.from_dlpack(tensor)[:] = 7
    assert "0 of 16777216 bytes" in repr(buffer)


def test_a_tensor_of_before_reads_0_behind_what_is_left() -> None:
    buffer = ReservedBuffer(1 << 20)
    before = np.from_dlpack(buffer.tensor(1 << 20))
    before[:] = 7
    buffer.tensor(4096)
    del buffer
    assert before[:4096].min() == 7 and before[4096:].max() == 0


def test_more_than_there_is_room_for_is_refused() -> None:
    buffer = ReservedBuffer(5000)
    assert tuple(buffer.tensor(5000).shape) == (5000,)
    with pytest.raises(BoundsError, match="5001 bytes do not fit into a buffer of at most 5000"):
        buffer.tensor(5001)
    for wrong in (-1, True, 1.5, "1KiB"):
        with pytest.raises(PoolUsageError, match="it must be a number of bytes"):
            buffer.tensor(wrong)  # type: ignore[arg-type]
    for size in (0, "x", None):
        with pytest.raises(PoolUsageError):
            ReservedBuffer(size)  # type: ignore[arg-type]


KIB, MIB = 2**10, 2**20


def test_the_thread_runs_in_a_forked_process_too() -> None:
    pool = InstrumentedPool(decay=0.001, bin_capacity=0)

    def work() -> None:
        pool.free(pool.alloc(8 * MIB))
        while pool.reserved:  # the process is ended where that never comes
            pass

    work()
    survives(work)


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
    assert pool.statistics().live == block.nbytes == 800
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


def test_a_view_lies_within_the_block_and_has_a_dtype_of_numbers() -> None:
    block = InstrumentedPool().alloc(10)
    assert block.view("int32").shape == (2,)
    for dtype, shape in (("int32", 3), ("int8", 11), ("int64", (2, 2**60))):
        with pytest.raises(BoundsError, match="10 bytes of the block"):
            block.view(dtype, shape)
    for dtype in ("O", "V0", "no"):
        with pytest.raises(PoolUsageError):
            block.view(dtype, 1)


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

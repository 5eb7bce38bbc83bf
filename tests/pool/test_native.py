"""The memory that the native core gives, and gives back."""

from __future__ import annotations

import ctypes
import gc
import resource
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BadFreeError, OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.processes import resident, survives
from tests.pool.reference.reference_pool import ReferencePool

KIB, MIB, PAGE = 2**10, 2**20, 4096


@pytest.mark.parametrize("guard", (False, True))
def test_handles_that_are_stale_or_foreign_free_nothing(guard: bool) -> None:
    pool, other = InstrumentedPool(guard=guard), InstrumentedPool()
    theirs = [other.alloc(64) for _ in range(4)]
    handle = pool.alloc(64)
    pool.free(handle)
    again = pool.alloc(64)
    with pytest.raises(BadFreeError, match="stale"):
        pool.free(handle)
    with pytest.raises(BadFreeError, match="another pool"):
        other.free(again)
    for wrong in (*theirs, handle + 1, -1, 12345, 2**62, pool.limit or 2**40):
        with pytest.raises(BadFreeError):
            pool.free(wrong)
    assert (pool.statistics().live, pool.statistics().frees, other.statistics().frees) == (64, 1, 0)


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


def test_options_by_name_go_before_those_given_as_a_whole() -> None:
    pool = InstrumentedPool(PoolOptions(limit=MIB, page=PAGE), limit=2 * MIB)
    assert pool.options == PoolOptions(limit=2 * MIB, page=PAGE, capacity=pool.options.capacity)
    with pytest.raises(OutOfMemoryError, match="limit of 2097152"):
        pool.alloc(3 * MIB)


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


def test_a_handle_that_is_dropped_keeps_its_block() -> None:
    pool = InstrumentedPool()
    pool.alloc(100, tag="dropped")
    assert [(leak.tag, leak.nbytes) for leak in pool.leaks()] == [("dropped", 100)]


@pytest.mark.parametrize("power", range(6, 31, 4))
def test_alignment_holds_up_to_a_gibibyte(power: int) -> None:
    pool = InstrumentedPool()
    pool.alloc(100)
    for nbytes in (0, 1, 100_000):
        assert pool.alloc(nbytes, align=2**power).pointer % 2**power == 0
    for wrong in (0, 3, 2**31):
        with pytest.raises(PoolUsageError, match="the alignment "):
            pool.alloc(64, align=wrong)


@pytest.mark.parametrize("huge", (False, True))
def test_what_is_given_back_leaves_the_process(huge: bool) -> None:
    pool = InstrumentedPool(huge=huge)
    before = resident()
    handle = pool.alloc(64 * MIB)
    assert resident() - before < 16 * MIB, "address space alone is not resident"
    ctypes.memset(handle.pointer, 1, 64 * MIB)
    assert resident() - before > 48 * MIB
    pool.free(handle)
    assert pool.trim() == 64 * MIB
    assert resident() - before < 16 * MIB


def _freed(nbytes: int) -> InstrumentedPool:
    """A pool that holds `nbytes` of free memory that was in use."""
    pool = InstrumentedPool()
    ctypes.memset((handle := pool.alloc(nbytes)).pointer, 1, nbytes)
    pool.free(handle)
    return pool


def test_a_trim_that_is_out_of_time_gives_the_highest_pages_back() -> None:
    pool = _freed(64 * MIB)
    given = pool.trim(max_seconds=0)
    assert 0 < given < 16 * MIB
    assert pool.statistics().reserved == 64 * MIB - given
    assert pool.snapshot().backed == ((0, 64 * MIB - given),)
    assert pool.trim(max_seconds=1000) == 64 * MIB - given
    assert pool.trim(max_seconds=0) == 0
    assert pool.statistics().decommits == 2


@pytest.mark.parametrize(("written", "nbytes"), ((8 * MIB, 8 * MIB), (MIB, 8 * MIB), (8 * MIB, 32 * MIB)))
def test_pages_are_made_at_once_for_a_program_that_writes_what_it_takes(written: int, nbytes: int) -> None:
    """Not where it wrote only a part, nor for large blocks, most of which may never be written."""
    pool = InstrumentedPool(huge=False)
    ctypes.memset(pool.alloc(8 * MIB).pointer, 1, written)
    before = resident()
    pointer = pool.alloc(nbytes).pointer
    made = resident() - before
    assert made > 7 * MIB if written == nbytes else made < MIB
    assert ctypes.string_at(pointer, nbytes) == bytes(nbytes)


def test_huge_pages_back_no_more_than_is_reserved() -> None:
    """One byte is touched in each block: with huge pages only where a block covers them."""
    pool = InstrumentedPool(PoolOptions(bin_capacity=0))
    before = resident()
    first = [pool.alloc(4 * MIB) for _ in range(16)]
    for handle in first:
        pool.free(handle)
    pool.trim()
    for _ in range(64):
        ctypes.memset(pool.alloc(64 * KIB).pointer, 1, 1)
    assert resident() - before < pool.reserved + 2 * MIB


def test_huge_pages_are_forgone_where_a_part_goes() -> None:
    """A block on huge pages loses a part of each; what lies there next is smaller."""
    pool = InstrumentedPool(PoolOptions(soft_limit=Fraction(1), bin_capacity=0))
    before = resident()
    pool.free(pool.alloc(64 * MIB))
    kept = [pool.alloc(MIB) for _ in range(32)]
    for handle in kept[::2]:
        pool.free(handle)
    assert pool.trim() == 32 * MIB + 16 * MIB
    for _ in range(16):
        ctypes.memset(pool.alloc(64 * KIB).pointer, 1, 1)
    assert resident() - before < pool.reserved + 2 * MIB


def test_pages_that_move_keep_to_the_limit_and_lose_nothing() -> None:
    """Ever larger blocks fit into no free interval, so the pages of the intervals move behind them."""
    pool = InstrumentedPool(PoolOptions(soft_limit=Fraction(1), bin_capacity=0))
    before = resident()
    kept: list[tuple[int, int, int]] = []
    for n in range(1, 120):
        nbytes = n * 100_003 % (4 * MIB) + 1
        pointer = (handle := pool.alloc(nbytes)).pointer
        ctypes.memset(pointer, n, nbytes)
        kept.append((handle, n, nbytes))
        if n % 3 == 0:
            pool.free(kept.pop(n % len(kept))[0])
    assert pool.statistics().decommitted > 8 * MIB
    assert resident() - before < pool.reserved + 2 * MIB
    for handle, n, nbytes in kept:
        assert ctypes.string_at(handle.pointer, nbytes) == bytes([n]) * nbytes


@pytest.mark.parametrize("touched", (False, True))
def test_a_checkerboard_gives_back_what_is_free_within_pages(touched: bool) -> None:
    """No page of the pool is free, but most of the system's within every second block; they move or go."""
    options = PoolOptions(soft_limit=Fraction(1), bin_capacity=0)
    pool, reference = InstrumentedPool(options), ReferencePool(options)
    before, size = resident(), 48 * KIB
    kept = [(pool.alloc(size), reference.alloc(size)) for _ in range(400)]
    for n, (handle, _) in enumerate(kept if touched else ()):
        ctypes.memset(handle.pointer, n % 255 + 1, size)
    for handle, address in kept[::2]:
        pool.free(handle)
        reference.free(address)
    for n in range(160):
        nbytes = (50 + n % 7) * KIB
        handle, address = pool.alloc(nbytes), reference.alloc(nbytes)
        assert handle.address == address
        ctypes.memset(handle.pointer, 1, nbytes)
    assert replace(pool.statistics(), threads=1) == reference.statistics()
    assert pool.statistics().peak_reserved <= 400 * size + 2 * MIB + 64 * KIB
    assert resident() - before < pool.reserved + 2 * MIB
    for n, (handle, _) in enumerate(kept[1::2] if touched else ()):
        assert ctypes.string_at(handle.pointer, size) == bytes([(2 * n + 1) % 255 + 1]) * size


def test_less_address_space_makes_a_smaller_pool() -> None:
    def work() -> None:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
        resource.setrlimit(resource.RLIMIT_AS, (taken + 512 * MIB, taken + 512 * MIB))
        pool = InstrumentedPool()
        pool.alloc(16 * MIB)
        with pytest.raises(OutOfMemoryError):
            pool.alloc(1024 * MIB)

    survives(work)


def test_a_process_that_has_locked_its_memory_gives_back_what_it_frees() -> None:
    def work() -> None:
        lock_all = 1 | 2 | 4  # what there is, what will be, as it is written
        if ctypes.CDLL(None).mlockall(lock_all) != 0:
            return  # it may not
        pool = InstrumentedPool(soft_limit=None, huge=False)
        block = pool.alloc(64 * MIB)
        before = resident()
        ctypes.memset(block.pointer, 1, 64 * MIB)
        block.free()
        pool.trim()
        assert resident() - before < 16 * MIB

    survives(work)

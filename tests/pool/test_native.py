from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from threading import Barrier, Event, Thread
from time import sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.pool.errors import BadFreeError, BoundsError, OutOfMemoryError, PoolUsageError
from symalloc.pool.native import NativeMissingError, NativePool, load_library
from symalloc.pool.policy import Options, PagedPool
from symalloc.pool.trace import Alloc, Free, Trace, read_trace, trace_as_json
from symalloc.pool.workloads import WORKLOADS, make_trace
from tests.pool.steps import STEPS, Step
from tests.pool.test_policy import OPTIONS

pytestmark = pytest.mark.usefixtures("native")

KIB, MIB, PAGE = 2**10, 2**20, 4096


def _same(reference: PagedPool, native: NativePool) -> None:
    counted, pages = native.statistics(), reference.pages
    assert (counted.reserved, counted.used, counted.peak_used) == (
        reference.reserved,
        reference.used,
        reference.peak_used,
    )
    for name in ("commits", "committed", "decommits", "decommitted"):
        assert getattr(counted, name) == sum(getattr(p, name) for p in pages), name


@settings(max_examples=150)
@given(options=OPTIONS, steps=STEPS, trims=st.booleans())
def test_decisions_are_those_of_the_reference(options: Options, steps: list[Step], trims: bool) -> None:
    reference, native = PagedPool(options), NativePool(options)
    live: list[tuple[int, int]] = []
    for step in steps:
        try:
            address = reference.alloc(step.nbytes, align=step.align, escapes=step.escapes)
        except OutOfMemoryError as error:
            with pytest.raises(OutOfMemoryError) as refused:
                native.alloc(step.nbytes, align=step.align, escapes=step.escapes)
            assert str(refused.value) == str(error)
        else:
            handle = native.alloc(step.nbytes, align=step.align, escapes=step.escapes)
            assert native.address(handle) == address
            live.append((address, handle))
        for _ in range(min(step.frees, len(live))):
            address, handle = live.pop(step.pick % len(live))
            reference.free(address)
            native.free(handle)
        _same(reference, native)
        if trims and step.pick < 50:
            assert native.trim() == reference.trim()


def _peak(trace: Trace) -> int:
    live, peak, sizes = 0, 0, dict[int, int]()
    for event in trace.events:
        match event:
            case Alloc(block=block, nbytes=nbytes):
                sizes[block] = nbytes
                live += nbytes
                peak = max(peak, live)
            case Free(block=block):
                live -= sizes.pop(block)
    return peak


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("limited", (False, True))
@pytest.mark.parametrize("apart", (False, True))
def test_whole_traces_are_placed_alike(workload: str, apart: bool, limited: bool) -> None:
    """Under a limit some allocations are refused, by both; and both are trimmed now and then."""
    trace = make_trace(workload, 4)
    limit = _peak(trace) * 9 // 10 if limited else None
    options = Options(apart=apart, soft_limit=Fraction(21, 20), limit=limit)
    reference, native = PagedPool(options), NativePool(options)
    blocks: dict[int, tuple[int, int]] = {}
    refused = 0
    for index, event in enumerate(trace.events):
        match event:
            case Alloc(block=block, nbytes=nbytes):
                escapes = block in trace.escape
                try:
                    address = reference.alloc(nbytes, escapes=escapes)
                except OutOfMemoryError:
                    refused += 1
                    with pytest.raises(OutOfMemoryError):
                        native.alloc(nbytes, escapes=escapes)
                    continue
                handle = native.alloc(nbytes, escapes=escapes)
                assert native.address(handle) == address
                blocks[block] = address, handle
            case Free(block=block) if block in blocks:
                address, handle = blocks.pop(block)
                reference.free(address)
                native.free(handle)
        if limited and index % 500 == 499:
            assert native.trim() == reference.trim()
    _same(reference, native)
    assert (refused > 0) == limited


@contextmanager
def _idle_thread(work: Callable[[], object]) -> Iterator[None]:
    """A thread that has done `work` and now waits."""
    done, stop = Event(), Event()

    def run() -> None:
        work()
        done.set()
        stop.wait()

    thread = Thread(target=run)
    thread.start()
    done.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _fill_bins(pool: NativePool) -> None:
    for handle in [pool.alloc(n) for n in range(64, 64 * KIB, 1024)]:
        pool.free(handle)


def test_bins_of_an_idle_thread_are_emptied_by_trim() -> None:
    pool = NativePool()
    with _idle_thread(lambda: _fill_bins(pool)):
        assert pool.statistics().used > MIB, "blocks wait in its bins"
        pool.trim()
        counted = pool.statistics()
        assert (counted.live, counted.used, counted.reserved) == (0, 0, 0)


def test_bins_of_an_idle_thread_are_emptied_before_an_allocation_fails() -> None:
    pool = NativePool(Options(limit=3 * MIB))
    with _idle_thread(lambda: _fill_bins(pool)):
        assert pool.statistics().used > MIB, "blocks wait in its bins"
        handle = pool.alloc(3 * MIB)
        assert pool.statistics().used == 3 * MIB
        pool.free(handle)


def test_a_forked_process_reaches_the_bins_of_threads_that_it_has_not() -> None:
    pool = NativePool()
    with _idle_thread(lambda: _fill_bins(pool)):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            pool.trim()
            os._exit(0 if pool.statistics().used == 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("power", range(6, 31, 4))
def test_alignment_holds_up_to_a_gibibyte(power: int) -> None:
    pool = NativePool()
    pool.alloc(100)
    for nbytes in (0, 1, 100_000):
        assert pool.pointer(pool.alloc(nbytes, align=2**power)) % 2**power == 0
    with pytest.raises(OutOfMemoryError, match="alignment"):
        pool.alloc(64, align=2**31)


def test_a_shape_that_cannot_be_is_refused() -> None:
    pool = NativePool()
    for shape in ((-1,), (2, -3), (2**40, 2**40), (2**62,)):
        with pytest.raises(BoundsError):
            pool.empty(shape, "float32")
    assert tuple(pool.empty((0, 5), "float32").shape) == (0, 5)
    assert tuple(pool.empty((), "float32").shape) == ()


def test_memory_is_real_and_aligned() -> None:
    pool = NativePool()
    for nbytes, align in ((1, 64), (100, 256), (3 * MIB, 4096)):
        pointer = pool.pointer(pool.alloc(nbytes, align=align))
        assert pointer % align == 0
        ctypes.memset(pointer, 0xAB, nbytes)
        assert ctypes.string_at(pointer, nbytes) == b"\xab" * nbytes


def _resident() -> int:
    """Bytes of this process that are in memory and not shared with files."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon"))
    return int(line.split()[1]) * KIB


@pytest.mark.parametrize("huge", (False, True))
def test_what_is_given_back_leaves_the_process(huge: bool) -> None:
    pool = NativePool(huge=huge)
    before = _resident()
    handle = pool.alloc(256 * MIB)
    assert _resident() - before < 16 * MIB, "address space alone is not resident"
    ctypes.memset(pool.pointer(handle), 1, 256 * MIB)
    assert _resident() - before > 240 * MIB
    pool.free(handle)
    assert pool.trim() == 256 * MIB
    assert _resident() - before < 16 * MIB


def test_huge_pages_back_no_more_than_is_reserved() -> None:
    """One byte is touched in each block: with huge pages only where a block covers them."""
    pool = NativePool(Options(bin_capacity=0))
    before = _resident()
    first = [pool.alloc(4 * MIB) for _ in range(16)]
    for handle in first:
        pool.free(handle)
    pool.trim()
    for _ in range(64):
        ctypes.memset(pool.pointer(pool.alloc(64 * KIB)), 1, 1)
    assert _resident() - before < pool.reserved + 2 * MIB


def test_pages_that_move_keep_to_the_limit_and_lose_nothing() -> None:
    """Ever larger blocks fit into no hole, so the pages of the holes move behind them."""
    pool = NativePool(Options(soft_limit=Fraction(1), bin_capacity=0))
    before = _resident()
    kept: list[tuple[int, int, int]] = []
    for n in range(1, 120):
        nbytes = n * 100_003 % (4 * MIB) + 1
        pointer = pool.pointer(handle := pool.alloc(nbytes))
        ctypes.memset(pointer, n, nbytes)
        kept.append((handle, n, nbytes))
        if n % 3 == 0:
            pool.free(kept.pop(n % len(kept))[0])
    assert pool.statistics().decommitted > 8 * MIB
    assert _resident() - before < pool.reserved + 2 * MIB
    for handle, n, nbytes in kept:
        assert ctypes.string_at(pool.pointer(handle), nbytes) == bytes([n]) * nbytes


def test_handles_are_counted() -> None:
    pool = NativePool()
    handle = pool.alloc(1000, tag="weights")
    pool.retain(handle)
    pool.free(handle)
    assert pool.statistics().live == 1000
    assert pool.holders() == [("weights", 1000)]
    pool.free(handle)
    assert pool.statistics().live == 0
    assert pool.holders() == []


@pytest.mark.parametrize("use", (NativePool.free, NativePool.retain, NativePool.pointer, NativePool.address))
def test_stale_and_foreign_handles_are_refused(use: Callable[[NativePool, int], object]) -> None:
    pool = NativePool()
    handle = pool.alloc(64)
    pool.free(handle)
    again = pool.alloc(64)
    assert pool.address(again) == 0, "the block is in use again, under another handle"
    with pytest.raises(BadFreeError, match="stale"):
        use(pool, handle)
    for foreign in (-1, 12345, 2**62):
        with pytest.raises(BadFreeError):
            use(pool, foreign)
    assert pool.statistics().live == 64


@pytest.mark.parametrize("align", (0, -64, 3, 96))
def test_an_alignment_must_be_a_power_of_two(align: int) -> None:
    with pytest.raises(PoolUsageError, match="power of two"):
        NativePool().alloc(64, align=align)


@pytest.mark.parametrize("nbytes", (-1, 2**41, 2**62))
def test_sizes_that_cannot_be_are_refused(nbytes: int) -> None:
    with pytest.raises(OutOfMemoryError):
        NativePool().alloc(nbytes)


def test_tensors_return_their_memory_and_keep_the_pool() -> None:
    pool = NativePool()
    tensor = pool.empty((3, 5), "float32")
    assert tuple(tensor.shape) == (3, 5)
    assert pool.statistics().live == 60
    del tensor
    assert pool.statistics().live == 0
    orphan = pool.empty((4,), "int64")
    del pool
    gc.collect()
    assert tuple(orphan.shape) == (4,)


def _wait_for_others(pool: NativePool) -> None:
    """Until this thread is the only one with bins: Python joins a thread shortly before it really ends."""
    for _ in range(500):
        if pool.statistics().threads == 1:
            return
        sleep(0.01)
    pytest.fail("threads that have ended have not handed their bins back")


def test_blocks_freed_by_another_thread_and_threads_that_end() -> None:
    pool = NativePool()
    blocks: list[int] = []
    maker = Thread(target=lambda: blocks.extend(pool.alloc(n) for n in range(1, 20_000, 37)))
    maker.start()
    maker.join()
    assert pool.statistics().live == sum(range(1, 20_000, 37))
    for block in blocks:
        pool.free(block)
    assert pool.statistics().live == 0
    _wait_for_others(pool)
    pool.trim()
    assert (pool.statistics().used, pool.reserved) == (0, 0)


def test_threads_at_once() -> None:
    pool = NativePool(Options(soft_limit=Fraction(1)))
    start, wrong = Barrier(4), list[str]()

    def work(seed: int) -> None:
        start.wait()
        for n in range(1500):
            nbytes = (n * 7919 + seed * 104729) % 300_000
            handle = pool.alloc(nbytes + 8)
            pointer = pool.pointer(handle)
            ctypes.c_uint64.from_address(pointer).value = (seed << 32) + n
            if n % 100 == 0:
                pool.trim()
            if ctypes.c_uint64.from_address(pointer).value != (seed << 32) + n:
                wrong.append(f"{seed}/{n}")
            pool.free(handle)

    threads = [Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.statistics().allocs == pool.statistics().frees == 6000
    pool.free(pool.alloc(1))  # this thread has bins too
    _wait_for_others(pool)
    pool.trim()
    counted = pool.statistics()
    assert (counted.live, counted.used, counted.reserved) == (0, 0, 0)


def test_a_forked_process_has_a_pool_of_its_own() -> None:
    pool = NativePool()
    handle = pool.alloc(MIB)
    ctypes.memset(pool.pointer(handle), 7, MIB)
    child = os.fork()
    if child == 0:
        try:
            ctypes.memset(pool.pointer(handle), 9, MIB)
            pool.free(handle)
            pool.free(pool.alloc(3 * MIB))
            os._exit(0 if pool.statistics().live == 0 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ctypes.string_at(pool.pointer(handle), MIB) == b"\7" * MIB
    assert pool.statistics().live == MIB


def test_statistics_count_what_was_asked_for() -> None:
    pool = NativePool(replace(Options(), page=PAGE))
    handles = [pool.alloc(n) for n in (0, 1, 100)]
    counted = asdict(pool.statistics())
    assert (counted["live"], counted["used"], counted["reserved"]) == (101, 256, PAGE)
    assert (counted["allocs"], counted["frees"]) == (3, 0)
    for handle in handles:
        pool.free(handle)
    assert pool.statistics().live == 0


def test_a_library_that_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    file = tmp_path / "libsymalloc_pool.so"
    file.write_text("no library")
    with pytest.raises(NativeMissingError, match="cannot be loaded"):
        load_library(file)


def test_forking_amid_other_threads_does_not_hang_the_child() -> None:
    pool, stop = NativePool(), Event()

    def work() -> None:
        while not stop.is_set():
            for handle in [pool.alloc(n, tag="x") for n in range(0, 100_000, 9973)]:
                pool.free(handle)

    thread = Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # ends the child where it hangs
                pool.free(pool.alloc(2**20))
                pool.trim()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


def test_less_address_space_makes_a_smaller_pool() -> None:
    child = os.fork()
    if child == 0:
        try:
            taken = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
            resource.setrlimit(resource.RLIMIT_AS, (taken + 512 * MIB, taken + 512 * MIB))
            pool = NativePool()
            pool.alloc(16 * MIB)
            try:
                pool.alloc(1024 * MIB)
            except OutOfMemoryError:
                os._exit(0)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_out_of_memory_names_who_holds_most() -> None:
    pool = NativePool(Options(limit=8 * MIB))
    pool.alloc(MIB, tag="cache")
    kept = [pool.alloc(2 * MIB, tag="weights"), pool.alloc(3 * MIB, tag="weights"), pool.alloc(MIB)]
    with pytest.raises(OutOfMemoryError) as error:
        pool.alloc(2 * MIB)
    said = str(error.value)
    assert said.splitlines()[2] == (
        "  held: `weights` 5242880 bytes in 2 blocks, `cache` 1048576 bytes in 1 block, "
        "without a tag 1048576 bytes in 1 block"
    )
    pool.free(kept[0])
    pool.alloc(2 * MIB)


def test_what_was_allocated_is_recorded(tmp_path: Path) -> None:
    pool = NativePool()
    before = pool.alloc(10)
    pool.start_recording()
    first = pool.alloc(100)
    tensor = pool.empty((3,), "int64")
    pool.free(before)
    pool.free(first)
    again = pool.alloc(100)
    del tensor
    trace = pool.stop_recording()
    pool.free(again)
    assert list(trace.times) == sorted(trace.times)
    trace = replace(trace, times=())
    assert trace == Trace(
        name="recorded",
        events=(
            Alloc(block=1, nbytes=100),
            Alloc(block=2, nbytes=24),
            Free(block=1),
            Alloc(block=3, nbytes=100),
            Free(block=2),
        ),
    )
    path = tmp_path / "trace.json"
    path.write_bytes(trace_as_json(trace))
    assert read_trace(path) == trace
    pool.start_recording()
    assert pool.stop_recording().events == ()


def test_options_by_name_go_before_those_given_as_a_whole() -> None:
    pool = NativePool(Options(limit=MIB, page=PAGE), limit=2 * MIB)
    assert pool.options == Options(limit=2 * MIB, page=PAGE)
    with pytest.raises(OutOfMemoryError, match="limit of 2097152"):
        pool.alloc(3 * MIB)
    with pytest.raises(PoolUsageError, match="power of two"):
        NativePool(page=5000)

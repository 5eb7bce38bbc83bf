"""The native core among threads, in processes that fork, and in C++ under the sanitizers."""

from __future__ import annotations

import ctypes
import platform
import random
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from time import sleep

import pytest

from symalloc.native.native_functions import pool_functions
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.native_pool import BlockHandle
from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.library import ROOT, built
from tests.pool.processes import at_once, ran, survives, until

KIB, MIB, PAGE = 2**10, 2**20, 4096
MEMBARRIER = 324  # its number on x86-64


def _join(thread: Thread) -> None:
    """Wait until the thread of the system has ended, too: it returns what it kept behind Python's end."""
    thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():
        sleep(0.001)


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
        _join(thread)


def _fill_bins(pool: InstrumentedPool) -> None:
    for handle in [pool.alloc(n) for n in (*range(64, 64 * KIB, 1024), 600 * KIB)]:
        pool.free(handle)


def test_counts_of_threads_that_ended_are_kept_when_another_has_their_cache() -> None:
    pool = InstrumentedPool()
    for _ in range(3):
        thread = Thread(target=lambda: pool.free(pool.alloc(64)))
        thread.start()
        _join(thread)
    with _idle_thread(lambda: _fill_bins(pool)), _idle_thread(lambda: _fill_bins(pool)):
        assert pool.statistics().threads == 2
    _fill_bins(pool)
    counted = pool.statistics()
    assert (counted.threads, counted.allocs, counted.frees, counted.live) == (1, 198, 198, 0)


def test_bins_of_an_idle_thread_are_emptied_by_trim() -> None:
    pool = InstrumentedPool()
    with _idle_thread(lambda: _fill_bins(pool)):
        assert pool.statistics().used > 2 * MIB, "blocks wait in its bins, and a large one beside"
        pool.trim()
        counted = pool.statistics()
        assert (counted.live, counted.used, counted.reserved) == (0, 0, 0)


def test_bins_of_an_idle_thread_are_emptied_before_an_allocation_fails() -> None:
    pool = InstrumentedPool(PoolOptions(limit=3 * MIB))
    with _idle_thread(lambda: _fill_bins(pool)):
        assert pool.statistics().used > 2 * MIB, "blocks wait in its bins, and a large one beside"
        handle = pool.alloc(3 * MIB)
        assert pool.statistics().used == 3 * MIB
        pool.free(handle)


def test_a_forked_process_reaches_the_bins_of_threads_that_it_has_not() -> None:
    pool = InstrumentedPool()

    def work() -> None:
        pool.trim()
        assert pool.statistics().used == 0

    with _idle_thread(lambda: _fill_bins(pool)):
        survives(work)


def test_blocks_freed_by_another_thread_and_threads_that_end() -> None:
    pool = InstrumentedPool()
    blocks: list[int] = []
    at_once(lambda: blocks.extend(pool.alloc(n) for n in range(1, 20_000, 37)))
    assert pool.statistics().live == sum(range(1, 20_000, 37))
    for block in blocks:
        pool.free(block)
    assert pool.statistics().live == 0
    until(lambda: pool.statistics().threads == 1)  # Python joins a thread shortly before it really ends
    pool.trim()
    assert (pool.statistics().used, pool.reserved) == (0, 0)


def test_python_goes_on_while_a_pool_is_trimmed() -> None:
    InstrumentedPool()
    assert pool_functions.trim.release_gil


def test_a_forked_process_has_a_pool_of_its_own() -> None:
    pool = InstrumentedPool()
    with pool.session("parent", limit=4 * MIB) as session:
        handle = pool.alloc(MIB)
        ctypes.memset(handle.pointer, 7, MIB)

        def work() -> None:
            ctypes.memset(handle.pointer, 9, MIB)
            pool.free(handle)
            block = pool.alloc(4 * MIB)
            assert session.statistics().live == 4 * MIB
            pool.free(block)
            assert pool.statistics().live == 0

        survives(work)
    assert ctypes.string_at(handle.pointer, MIB) == b"\7" * MIB
    assert pool.statistics().live == session.statistics().live == MIB


def test_forking_amid_other_threads_does_not_hang_the_child() -> None:
    pool, stop = InstrumentedPool(), Event()

    def work() -> None:
        while not stop.is_set():
            for handle in [pool.alloc(n, tag="x") for n in range(0, 100_000, 9973)]:
                pool.free(handle)

    thread = Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            survives(lambda: (pool.free(pool.alloc(2**20)), pool.trim()))
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere the pool does without membarrier")
def test_a_membarrier_that_is_denied_later_is_made_up_for() -> None:
    """A filter of system calls, which the process gets once the pool runs."""

    def work() -> None:
        pool = InstrumentedPool(limit=4 * MIB)
        pool.free(pool.alloc(MIB))
        _deny(MEMBARRIER)
        at_once(*[lambda: [pool.free(pool.alloc(n)) for n in range(0, 2_000_000, 997)] for _ in range(3)])
        pool.trim()
        assert pool.statistics().live == 0

    survives(work)


def _deny(call: int) -> None:
    """Have a system call answer EPERM in this process from now on (seccomp(2))."""
    load, equal, answer, allowed, errno = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001
    steps = ((load, 0, 0, 0), (equal, 0, 1, call), (answer, 0, 0, errno), (answer, 0, 0, allowed))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    filters = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(filters))
    system = ctypes.CDLL(None, use_errno=True)
    assert system.prctl(38, 1, 0, 0, 0) == 0, "no new privileges"
    assert system.prctl(22, 2, program) == 0, "a filter"
    assert system.syscall(call, 0, 0, 0) == -1


THREADS, OPERATIONS = 8, 2_500
BUILDS = {
    "plain": 1_250_000,
    "address": 60_000,
    "thread": 30_000,
    "undefined": 60_000,
}  # operations of each thread


def _output(program: str, build: str, *arguments: str) -> str:
    """What a program of native/test prints, built for `build`."""
    options = [] if build == "plain" else [f"-DSYMALLOC_SANITIZE={build}"]
    folder = built(program, ROOT / "build" / f"stress-{build}", *options)
    status, out, err = ran(folder / program, *arguments)
    assert (status, err) == (0, ""), out + err
    return out


@pytest.mark.sanitize
@pytest.mark.parametrize("build", BUILDS)
def test_threads_lose_nothing(build: str) -> None:
    said = _output("symalloc_stress", build, "8", str(BUILDS[build]))
    callbacks = r"(\d+) callbacks for want of memory, (\d+) at watermarks\n"
    counts = re.match(callbacks + r"(\d+) operations, (\d+) refused at the limit, 0 faults", said)
    assert counts is not None, said
    asked, watched, operations, refused = map(int, counts.groups())
    assert operations > 7 * BUILDS[build]
    assert min(asked, watched, refused) > 0, "the limit and the watermarks have been met"


# builds, programs to try in the plain one, what they say
PROGRAMS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "symalloc_trimming": (tuple(BUILDS), 2000, r"0 faults\n"),
    "symalloc_guard": (("thread", "address", "undefined"), 0, r"0 faults\n"),
    "symalloc_scarce": (
        ("plain", "address", "undefined"),
        *(2000, r"0 of \d+ programs are wrong, \d+ operations had no memory\n"),
    ),
    "symalloc_free_list": (("plain", "address", "undefined"), 5000, r"0 of \d+ programs differ\n"),
}


@pytest.mark.sanitize
@pytest.mark.parametrize(
    ("program", "build"), [(program, build) for program, row in PROGRAMS.items() for build in row[0]]
)
def test_programs_in_cpp_find_no_fault(program: str, build: str) -> None:
    _, most, says = PROGRAMS[program]
    tried = str(most if build == "plain" else 200)
    assert re.fullmatch(says, _output(program, build, *([tried] if most else [])))


def _ends(pointer: int, nbytes: int) -> tuple[ctypes.c_uint64, ctypes.c_uint64]:
    return ctypes.c_uint64.from_address(pointer), ctypes.c_uint64.from_address(pointer + nbytes - 8)


Stamped = tuple[BlockHandle, int, int]  # block, bytes, what stands at both of its ends


def test_python_threads_lose_nothing() -> None:
    """Each allocates, stamps, hands over, checks and frees blocks at random."""
    pool, others = InstrumentedPool(limit=3 * MIB), SimpleQueue[Stamped]()
    refused, lost = list[int](), list[Stamped]()

    def drop(block: Stamped) -> None:
        handle, nbytes, stamp = block
        lost.extend(block for at in _ends(handle.pointer, nbytes) if at.value != stamp)
        pool.free(handle)

    def work(seed: int) -> None:
        source, kept = random.Random(seed), list[Stamped]()
        for step in range(OPERATIONS):
            if step % 500 == 499:
                pool.trim()
            if len(kept) < 32 and source.random() < 0.6:
                nbytes = 16 + source.randrange(16 << source.randrange(17))
                try:
                    kept.append((pool.alloc(nbytes), nbytes, seed * OPERATIONS + step))
                except OutOfMemoryError:
                    refused.append(nbytes)
                    continue
                for at in _ends(kept[-1][0].pointer, nbytes):
                    at.value = kept[-1][2]
            elif kept:
                block = kept.pop(source.randrange(len(kept)))
                if source.random() < 0.25:
                    others.put(block)
                    block = others.get()  # another thread's, or the same
                drop(block)
        for block in kept:
            drop(block)

    at_once(*(partial(work, seed) for seed in range(THREADS)))
    assert refused, "the limit has been met"
    assert lost == []
    counted = pool.statistics()
    assert counted.live == 0
    assert counted.allocs == counted.frees > THREADS * OPERATIONS / 4

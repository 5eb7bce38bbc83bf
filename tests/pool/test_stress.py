"""The native core under threads: from Python, and in C++ under the sanitizers."""

from __future__ import annotations

import ctypes
import random
import re
import subprocess
from queue import SimpleQueue

import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.native_pool import BlockHandle
from symalloc.pool.pool_errors import OutOfMemoryError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.library import ROOT, built
from tests.pool.processes import at_once
from tests.scale import tries

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
    done = subprocess.run([folder / program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


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


@pytest.mark.sanitize
@pytest.mark.parametrize("build", BUILDS)
def test_trimming_amid_allocations_forks_and_closing_loses_nothing(build: str) -> None:
    assert _output("symalloc_trimming", build, "2000" if build == "plain" else "200") == "0 faults\n"


@pytest.mark.sanitize
@pytest.mark.parametrize("sanitizer", ("thread", "address", "undefined"))
def test_looking_guarded_blocks_up_is_clean(sanitizer: str) -> None:
    assert _output("symalloc_guard", sanitizer) == "0 faults\n"


@pytest.mark.sanitize
@pytest.mark.parametrize("build", ("plain", "address", "undefined"))
def test_a_pool_without_memory_for_its_books_loses_nothing(build: str) -> None:
    said = _output("symalloc_scarce", build, "2000" if build == "plain" else "200")
    assert re.match(r"0 of \d+ programs are wrong, \d+ operations had no memory\n", said) is not None, said


@pytest.mark.parametrize(
    "build", ("plain", *(pytest.param(b, marks=pytest.mark.sanitize) for b in ("address", "undefined")))
)
def test_the_free_list_is_that_of_a_map(build: str) -> None:
    programs = tries(100, 5000) if build == "plain" else 200
    assert _output("symalloc_free_list", build, str(programs)) == f"0 of {programs} programs differ\n"


class _Worker:
    """Allocates, stamps, hands over, checks and frees blocks at random."""

    def __init__(
        self, pool: InstrumentedPool, others: SimpleQueue[tuple[BlockHandle, int, int]], seed: int
    ) -> None:
        self.pool, self.others, self.random = pool, others, random.Random(seed)
        self.refused, self.lost = 0, 0

    def run(self) -> None:
        kept: list[tuple[BlockHandle, int, int]] = []
        for step in range(OPERATIONS):
            if step % 500 == 499:
                self.pool.trim()
            if len(kept) < 32 and self.random.random() < 0.6:
                self._make(kept, step)
                continue
            if not kept:
                continue
            block = kept.pop(self.random.randrange(len(kept)))
            if self.random.random() < 0.25:
                self.others.put(block)
                block = self.others.get()  # another thread's, or the same
            self._drop(*block)
        for block in kept:
            self._drop(*block)

    def _make(self, kept: list[tuple[BlockHandle, int, int]], step: int) -> None:
        nbytes = 16 + self.random.randrange(16 << self.random.randrange(17))
        try:
            handle = self.pool.alloc(nbytes)
        except OutOfMemoryError:
            self.refused += 1
            return
        stamp = hash((id(self), step)) & (2**63 - 1)
        for at in _ends(handle.pointer, nbytes):
            at.value = stamp
        kept.append((handle, nbytes, stamp))

    def _drop(self, handle: BlockHandle, nbytes: int, stamp: int) -> None:
        self.lost += any(at.value != stamp for at in _ends(handle.pointer, nbytes))
        self.pool.free(handle)


def _ends(pointer: int, nbytes: int) -> tuple[ctypes.c_uint64, ctypes.c_uint64]:
    return ctypes.c_uint64.from_address(pointer), ctypes.c_uint64.from_address(pointer + nbytes - 8)


def test_python_threads_lose_nothing() -> None:
    pool = InstrumentedPool(PoolOptions(limit=3 << 20))
    others: SimpleQueue[tuple[BlockHandle, int, int]] = SimpleQueue()
    workers = [_Worker(pool, others, seed) for seed in range(THREADS)]
    at_once(*(worker.run for worker in workers))
    assert [worker.lost for worker in workers] == [0] * THREADS
    assert sum(worker.refused for worker in workers) > 0, "the limit has been met"
    counted = pool.statistics()
    assert counted.live == 0
    assert counted.allocs == counted.frees > THREADS * OPERATIONS / 4

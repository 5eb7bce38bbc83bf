"""A pool in guard mode: overruns, underruns and uses after a free are found, and named."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import BadFreeError, OutOfMemoryError, OverrunError
from tests.pool.guard_faults import FaultPlan, run_fault
from tests.pool.processes import died, ran, resident, survives

PAGE = 4096


def _write(pointer: int, value: int = 0) -> None:
    ctypes.c_uint8.from_address(pointer).value = value


@pytest.mark.parametrize(("nbytes", "align"), ((64, 64), (PAGE, 64), (128, 8), (PAGE, PAGE), (2**15, 2**14)))
def test_the_first_byte_past_the_end_ends_the_program(nbytes: int, align: int) -> None:
    pool = InstrumentedPool(guard=True)
    pointer = pool.alloc(nbytes, align=max(align, 64), tag="weights").pointer
    assert pointer % align == 0
    ctypes.memset(pointer, 1, nbytes)
    status, said = died(lambda: _write(pointer + nbytes))
    assert status == -signal.SIGSEGV
    assert f"symalloc: `weights` of {nbytes} bytes is overrun: byte 0 past its end is " in said


@pytest.mark.parametrize(("nbytes", "past"), ((1, 0), (1, 3), (20, 0), (20, 3), (63, 0), (65, 3), (5000, 0)))
def test_bytes_between_the_end_and_the_page_are_checked(nbytes: int, past: int) -> None:
    pool = InstrumentedPool(guard=True)
    handle = pool.alloc(nbytes, tag="alloc")
    ctypes.memset(handle.pointer, 1, nbytes)
    pool.check()
    _write(handle.pointer + nbytes + past)
    expected = f"`alloc` of {nbytes} bytes was overrun: byte {past} past its end was written"
    for find in (pool.check, handle.free):
        with pytest.raises(OverrunError, match=expected):
            find()
    assert pool.statistics().live == 0
    pool.check()


def test_what_lies_in_front_is_checked() -> None:
    pool = InstrumentedPool(guard=True)
    handle = pool.alloc(20, tag="alloc")
    _write(handle.pointer - 7)
    _write(handle.pointer - 2)
    with pytest.raises(OverrunError, match="`alloc` of 20 bytes was underrun: byte -2, in front of it,"):
        pool.free(handle)
    page = pool.alloc(PAGE).pointer
    status, said = died(lambda: _write(page - 1))
    assert status == -signal.SIGSEGV
    assert "symalloc: a block of 4096 bytes is underrun: byte -1, in front of it" in said


def test_a_freed_block_is_used_no_more() -> None:
    pool = InstrumentedPool(guard=True)
    handle = pool.alloc(200, tag="cache")
    pointer = handle.pointer
    pool.free(handle)
    status, said = died(lambda: ctypes.string_at(pointer + 5, 1))
    assert status == -signal.SIGSEGV
    assert "symalloc: `cache` of 200 bytes is read after it was freed: byte 5 of it" in said
    with pytest.raises(BadFreeError, match="stale"):
        pool.free(handle)


@pytest.mark.parametrize("fault", (lambda: _write(8), lambda: os.kill(os.getpid(), signal.SIGSEGV)))
def test_a_fault_elsewhere_or_a_signal_goes_its_own_way(fault: Callable[[], None]) -> None:
    pool = InstrumentedPool(guard=True)
    pool.alloc(64)
    status, said = died(fault)
    assert status == -signal.SIGSEGV
    assert "symalloc: " not in said


@pytest.mark.parametrize("seed", range(20))
def test_whatever_faults_is_named(seed: int) -> None:
    plan = FaultPlan.random(seed)
    if plan.handler == "those there are" and seed >= 5:  # TVM's takes 0.3 s
        plan = replace(plan, handler="none")
    assert run_fault(plan).fault == ""


def test_a_handler_that_was_taken_away_is_put_back() -> None:
    def work() -> None:
        pool = InstrumentedPool(guard=True)
        faulthandler.disable()  # restores what was there before the pool
        _write(pool.alloc(64, tag="late").pointer + 64)

    status, said = died(work)
    assert status == -signal.SIGSEGV
    assert "symalloc: `late` of 64 bytes is overrun" in said


IN_A_RING = """
import ctypes, faulthandler
from symalloc.pool.instrumented_pool import InstrumentedPool
faulthandler.enable(2)
first = InstrumentedPool(guard=True)
first.alloc(64).free()
faulthandler.disable()  # takes the pool's handler away, too
second = InstrumentedPool(guard=True)
faulthandler.enable(2)
ctypes.c_uint8.from_address(second.alloc(64, tag="block").pointer + 64).value = 0
"""


def test_a_fault_is_named_once_by_handlers_in_a_ring() -> None:
    status, _, said = ran(sys.executable, "-c", IN_A_RING)
    assert status == -signal.SIGSEGV
    line = "symalloc: `block` of 64 bytes is overrun: byte 0 past its end is written\n"
    assert said.startswith(f"{line}Fatal Python") and said.count("symalloc: ") == 1


def test_a_handler_that_never_ends_does_not_hold_the_process_up() -> None:
    libc = ctypes.CDLL(None)

    def work() -> None:
        libc.signal(signal.SIGSEGV, libc.sleep)  # 11 s, at each try of the instruction
        pool = InstrumentedPool(guard=True)
        _write(pool.alloc(64, tag="block").pointer + 64)

    status, said = died(work)
    assert status == -signal.SIGSEGV
    assert said == "symalloc: `block` of 64 bytes is overrun: byte 0 past its end is written\n"


def test_a_long_name_is_cut_between_characters() -> None:
    pool = InstrumentedPool(guard=True)
    pointer = pool.alloc(64, tag="a" + "ä" * 500).pointer
    _, said = died(lambda: _write(pointer + 64))
    assert "symalloc: `a" + "ä" * 119 + "` of 64 bytes is overrun" in said


def test_fresh_memory_is_no_number() -> None:
    for count in (7, 2**18, 2**18 + 1, 5 * 2**20 + 3):
        tensor = InstrumentedPool(guard=True).empty((count,), "float32")
        assert np.isnan(np.from_dlpack(tensor)).all()


def test_large_memory_is_mapped_and_not_written() -> None:
    pool = InstrumentedPool(guard=True)
    before = resident()
    tensor = np.from_dlpack(pool.empty((10 * 2**30,), "uint8", tag="large"))
    assert resident() - before < 64 * 2**20
    assert tensor[0] == tensor[-1] == tensor[7 * 2**30 + 5] == 255
    tensor[2**24] = 1
    assert tensor[2**24 - 1] == 255
    assert tensor[0] == 255
    assert tensor[2**25] == 255
    end = tensor.ctypes.data + tensor.nbytes
    status, said = died(lambda: _write(end))
    assert status == -signal.SIGSEGV
    assert "symalloc: `large` of 10737418240 bytes is overrun: byte 0 past its end" in said


def test_a_program_that_closes_its_files_goes_on() -> None:
    pool = InstrumentedPool(guard=True)
    first = np.from_dlpack(pool.empty((2**20,), "float32"))

    def work() -> None:
        os.closerange(3, 100)
        other = os.open("/proc/self/exe", os.O_RDONLY)
        assert np.isnan(np.from_dlpack(pool.empty((2**20,), "float32"))).all()
        assert np.isnan(first).all()
        os.close(other)

    survives(work)


def test_damage_to_a_tensor_is_raised_by_the_next_allocation(capfd: pytest.CaptureFixture[str]) -> None:
    pool = InstrumentedPool(guard=True)
    tensor = pool.empty((5,), "float32", tag="bias")
    _write(np.from_dlpack(tensor).ctypes.data + 20)
    del tensor
    expected = "`bias` of 20 bytes was overrun: byte 0 past its end was written"
    assert capfd.readouterr().err == f"symalloc: {expected}\n"
    with pytest.raises(OverrunError, match=expected):
        pool.alloc(1)
    pool.free(pool.alloc(1))


def test_pages_are_counted_and_limited_and_callbacks_are_asked() -> None:
    pool, seen = InstrumentedPool(guard=True, limit=4 * PAGE), list[int]()
    handles = [pool.alloc(n, tag=f"t{n}") for n in (1, PAGE, PAGE + 1)]
    counted = pool.statistics()
    assert (counted.live, counted.used, counted.reserved) == (2 * PAGE + 2, 4 * PAGE, 4 * PAGE)
    with pytest.raises(OutOfMemoryError) as error:
        pool.alloc(2 * PAGE)
    first, help_, held = str(error.value).splitlines()
    assert first.startswith("8192 bytes do not fit under the limit of 16384: 16384 are in use")
    assert "raise the limit by 8192 bytes" in help_ and "`t4097` 4097 bytes in 1 block" in held
    pool.on_high(4 * PAGE, seen.append)
    pool.on_oom(lambda nbytes, tries, why: pool.free(handles.pop()) or True)
    handles.append(pool.alloc(2 * PAGE))
    assert (len(handles), seen) == (3, [4 * PAGE])
    for handle in handles:
        pool.free(handle)
    counted = pool.statistics()
    assert (counted.live, counted.used, counted.reserved, counted.peak_reserved) == (0, 0, 0, 4 * PAGE)


def test_protected_pages_of_freed_blocks_are_given_back_in_the_end() -> None:
    pool = InstrumentedPool(guard=True)
    for _ in range(40_000):  # more mappings at a time than a process may have
        pool.free(pool.alloc(1))
    assert pool.statistics().frees == 40_000

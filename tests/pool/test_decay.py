"""Decay by age: memory that nobody needed for a while goes."""

from __future__ import annotations

import pytest

from symalloc.native.native_functions import pool_functions
from symalloc.pool.instrumented_pool import InstrumentedPool
from tests.pool.processes import survives

KIB, MIB = 2**10, 2**20
NEVER = 1e6  # seconds: the background thread sleeps, and the test says what time it is


@pytest.mark.usefixtures("native")
def test_memory_that_nobody_needs_goes_and_what_is_needed_in_each_period_stays() -> None:
    pool = InstrumentedPool(soft_limit=None, decay=NEVER, bin_capacity=0)
    for handle in [pool.alloc(40 * MIB), pool.alloc(MIB)]:
        pool.free(handle)
    assert pool_functions.decay_at(pool.object, 0.0) == 0
    for period in (1, 2, 3):
        pool.free(pool.alloc(10 * MIB))
        assert pool_functions.decay_at(pool.object, period * NEVER) == (31 * MIB if period == 1 else 0)
    assert pool.reserved == 10 * MIB
    assert pool_functions.decay_at(pool.object, 4 * NEVER) == 10 * MIB


@pytest.mark.usefixtures("native")
def test_a_thread_that_did_nothing_for_a_period_caches_nothing() -> None:
    pool = InstrumentedPool(decay=NEVER)
    pool.free(pool.alloc(16 * MIB))
    given = [pool_functions.decay_at(pool.object, period * NEVER) for period in range(4)]
    assert given == [0, 0, 16 * MIB, 0]
    assert pool.statistics().used == 0


@pytest.mark.usefixtures("native")
def test_the_thread_runs_in_a_forked_process_too() -> None:
    pool = InstrumentedPool(decay=0.001, bin_capacity=0)

    def work() -> None:
        pool.free(pool.alloc(8 * MIB))
        while pool.reserved:  # the process is ended where that never comes
            pass

    work()
    survives(work)

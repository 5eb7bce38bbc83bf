"""Decay by age: the policy with made-up clocks, and the native core beside the reference."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symalloc.native.native_functions import pool_functions
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from tests.pool.processes import survives
from tests.pool.reference.decay import Decay
from tests.pool.reference.reference_pool import ReferencePool
from tests.pool.steps import STEPS, Step

KIB, MIB = 2**10, 2**20
NEVER = 1e6  # seconds: the background thread sleeps, and the test says what time it is


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 100)), max_size=40))
def test_what_goes_is_the_least_that_was_free_since_a_period_began(steps: list[tuple[float, int]]) -> None:
    decay, now, seen, since = Decay(1.0), 0.0, [0], None
    for wait, free in steps:
        now += wait
        ended = since is None or now - since >= 1
        assert decay.ended(now) == ended
        if ended:
            assert decay.needless(free) == (0 if since is None else min([*seen, free]))
            decay.begin(now, free)
            seen, since = [free], now
        else:
            decay.note(free)
            seen.append(free)


@pytest.mark.usefixtures("native")
@given(
    steps=STEPS,
    waits=st.lists(st.sampled_from((0.0, 0.3, 1.0, 2.5)), min_size=80, max_size=80),
    separate=st.booleans(),
    soft=st.sampled_from((None, 1.1)),
    limit=st.sampled_from((None, 6 * MIB)),
)
def test_decays_are_those_of_the_reference(
    steps: list[Step], waits: list[float], separate: bool, soft: float | None, limit: int | None
) -> None:
    native = InstrumentedPool(
        separate_escaping=separate, soft_limit=soft, limit=limit, decay=NEVER, bin_capacity=256 * KIB
    )
    reference = ReferencePool(native.options)
    live: list[tuple[int, int]] = []
    now = 0.0
    for step, wait in zip(steps, waits, strict=False):
        if step.nbytes > 6 * MIB:
            continue
        live += _both(reference, native, step)
        for _ in range(min(step.frees, len(live))):
            address, handle = live.pop(step.pick % len(live))
            reference.free(address)
            native.free(handle)
        now += wait * NEVER
        assert pool_functions.decay_at(native.object, now) == reference.decay_at(now)
        assert native.statistics() == reference.statistics()


def _both(reference: ReferencePool, native: InstrumentedPool, step: Step) -> list[tuple[int, int]]:
    """The address and the handle of a block; nothing where both refuse it."""
    try:
        address = reference.alloc(step.nbytes, align=step.align, escapes=step.escapes)
    except MemoryError:
        with pytest.raises(MemoryError):
            native.alloc(step.nbytes, align=step.align, escapes=step.escapes)
        return []
    handle = native.alloc(step.nbytes, align=step.align, escapes=step.escapes)
    assert native.address(handle) == address
    return [(address, handle)]


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


@pytest.mark.parametrize("seconds", (0, -1, float("nan"), float("inf"), True, "1"))
def test_times_that_make_no_sense(seconds: Any) -> None:
    with pytest.raises(PoolUsageError, match=r"`decay` is a number of seconds from 0\.001 to"):
        PoolOptions(decay=seconds)

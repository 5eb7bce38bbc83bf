from __future__ import annotations

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.trace import Alloc, CallBegin, CallEnd, Free, Trace
from symalloc.relax.files.requests import PoolRequest
from symalloc.relax.run.pool_usage import PoolMeter, make_pool, peaks
from tests.pool.library import need_native


def test_the_peak_of_each_call_counts_what_was_live_before() -> None:
    trace = Trace(
        name="two calls",
        events=(
            CallBegin(call=1),
            Alloc(block=1, nbytes=100, call=1),
            Alloc(block=2, nbytes=50, call=1),
            Free(block=1),
            CallEnd(call=1),
            CallBegin(call=2),
            Alloc(block=3, nbytes=10, call=2),
            Free(block=2),
            CallEnd(call=2),
            CallBegin(call=3),
            CallEnd(call=3),
        ),
    )
    assert peaks(trace) == [150, 60, 10]
    assert peaks(trace, before=7) == [157, 67, 17]


def test_a_tally_and_what_is_larger_count_the_same_calls() -> None:
    need_native()
    pool = make_pool(PoolRequest(limit=2**20))
    everything = PoolMeter(pool)
    tallies = [PoolMeter(pool, larger=everything) for _ in range(2)]
    for meter, sizes in zip(tallies, ((1000, 500), (300,)), strict=True):
        for _ in range(2):
            with meter.call():
                for handle in [pool.alloc(n) for n in sizes]:
                    pool.free(handle)
    first, second, both = (t.use for t in (*tallies, everything))
    assert (first.calls, first.allocations, first.peak_live) == (2, 4, 1500)
    assert (second.calls, second.allocations, second.peak_live) == (2, 2, 300)
    assert (both.calls, both.allocations, both.peak_live, both.storages) == (4, 6, 1500, 1.5)
    assert both.peak_reserved == pool.statistics().peak_reserved


def test_the_pool_is_the_one_that_was_asked_for() -> None:
    need_native()
    pool = make_pool(PoolRequest(limit=12345, guard=True))
    assert isinstance(pool, InstrumentedPool) and pool.limit == 12345

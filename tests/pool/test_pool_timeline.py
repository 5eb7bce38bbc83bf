from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings

from symalloc.pool.metrics import prometheus_text
from symalloc.pool.native_pool import NativePool
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.replaying import replay, timeline_of
from symalloc.pool.trace import Alloc, CallBegin, CallEnd, Free, Trace
from tests.pool.steps import STEPS, Step, as_trace

MIB = 2**20
TIGHT = PoolOptions(soft_limit=Fraction(1), page=4096)


@settings(max_examples=40)
@given(STEPS)
def test_figures_are_those_of_the_replay(steps: list[Step]) -> None:
    trace = as_trace(steps)
    result, timeline = replay(trace, "pool", TIGHT), timeline_of(trace, TIGHT)
    assert max((m.live for m in timeline.moments), default=0) == result.peak_live
    assert max((m.reserved for m in timeline.moments), default=0) == result.peak_reserved
    assert timeline.statistics.live == result.left_live
    assert (timeline.statistics.commits, timeline.statistics.decommits) == (result.commits, result.decommits)


@settings(max_examples=40)
@given(STEPS)
def test_what_is_used_is_never_more_than_its_peak(steps: list[Step]) -> None:
    for options in (TIGHT, PoolOptions()):  # without caches of threads and with them
        timeline = timeline_of(as_trace(steps), options)
        most = timeline.statistics
        for m in timeline.moments:
            assert m.live <= m.used <= min(m.reserved, most.peak_used) <= most.peak_reserved


def test_what_waits_in_caches_is_used() -> None:
    """A block that a thread keeps counts when the next is taken, then and in the peak."""
    pool = NativePool(PoolOptions())
    for _ in range(40):
        blocks = [pool.alloc(nbytes) for nbytes in (3000, 5000, 70_000)]
        for block in blocks:
            block.free()
    larger = [pool.alloc(1000 * i) for i in range(1, 60)]
    now = pool.statistics()
    assert now.live <= now.used <= now.peak_used <= now.peak_reserved
    text = prometheus_text({"p": now})
    assert f'peak_used_bytes{{pool="p"}} {now.peak_used}' in text
    del larger


def test_times_calls_and_names() -> None:
    trace = Trace(
        name="t",
        events=(CallBegin(call=7), Alloc(block=1, nbytes=100, call=7), CallEnd(call=7), Free(block=1)),
        times=(10, 20, 30, 40),
        tags={1: "weights"},
    )
    timeline = timeline_of(trace)
    assert [moment.time for moment in timeline.moments] == [20, 40]
    assert (timeline.blocks[1].nbytes, timeline.blocks[1].call) == (100, 7)
    assert (timeline.name(1), timeline.name(2)) == ("weights", "block 2")
    untimed = timeline_of(replace(trace, times=()))
    assert [moment.time for moment in untimed.moments] == [1, 3], "events without times go by number"


def test_what_does_not_fit_ends_it() -> None:
    trace = Trace(name="t", events=tuple(Alloc(block=i, nbytes=MIB) for i in range(3)))
    timeline = timeline_of(trace, PoolOptions(limit=2 * MIB))
    assert timeline.failed is not None
    assert timeline.failed.startswith("event 2: 1048576 bytes do not fit")
    assert (len(timeline.moments), timeline.statistics.refused) == (2, 1)


def test_nothing_at_all() -> None:
    timeline = timeline_of(Trace(name="empty", events=()))
    assert (timeline.moments, timeline.statistics.live) == ((), 0)

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from time import sleep

import pytest
from hypothesis import given, settings

from symalloc.pool.instrumented_pool import Holding, InstrumentedPool, LeakWarning
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.trace import (
    Alloc,
    CallBegin,
    CallEnd,
    Free,
    Trace,
    read_trace,
    replay,
    timeline_of,
    trace_as_json,
)
from tests.pool.processes import at_once, survives
from tests.pool.steps import STEPS, Step, as_trace

KIB, MIB = 2**10, 2**20
UNBINNED = PoolOptions(bin_capacity=0)


def test_the_error_names_the_holders_and_what_would_help() -> None:
    pool = InstrumentedPool(UNBINNED, limit=8 * MIB)
    weights = pool.alloc(3 * MIB, tag="weights")
    cache = pool.empty((MIB,), "float32", tag="main.cache float32[n]")
    pool.alloc(MIB // 2)
    with pytest.raises(OutOfMemoryError) as error:
        pool.alloc(MIB)
    assert str(error.value).splitlines() == [
        "1048576 bytes do not fit under the limit of 8388608: 7864320 are in use, 7864320 reserved",
        "  help: raise the limit by 524288 bytes, or free as much, or run at smaller shapes",
        "  held: `main.cache float32[n]` 4194304 bytes in 1 block, `weights` 3145728 bytes in 1 block, "
        "without a tag 524288 bytes in 1 block",
    ]
    assert pool.statistics().refused == 1
    del cache
    pool.free(weights)


def test_only_the_largest_holders_are_named() -> None:
    pool = InstrumentedPool(UNBINNED, limit=MIB)
    for i in range(8):
        pool.alloc(64 * KIB + 64 * KIB * (i == 3), tag=f"t{i}")
    with pytest.raises(OutOfMemoryError) as error:
        pool.alloc(MIB)
    held = str(error.value).splitlines()[-1]
    assert held.startswith("  held: `t3` 131072 bytes in 1 block, `t0` 65536 bytes")
    assert held.endswith(", 3 tags more")


def test_the_advice_is_exact() -> None:
    """Raised by so much the allocation fits, by a page less it does not."""
    pool = InstrumentedPool(UNBINNED, limit=4 * MIB)
    blocks = [pool.alloc(700 * KIB) for _ in range(5)]
    pool.free(blocks[2])
    with pytest.raises(OutOfMemoryError) as error:
        pool.alloc(2 * MIB)
    lacking = int(str(error.value).split("raise the limit by ")[1].split()[0])
    pool.limit = 4 * MIB + lacking - 64 * KIB
    with pytest.raises(OutOfMemoryError):
        pool.alloc(2 * MIB)
    pool.limit = 4 * MIB + lacking
    pool.alloc(2 * MIB)


def test_the_limit_can_be_moved() -> None:
    pool = InstrumentedPool(UNBINNED)
    assert pool.limit == pool.options.limit, "what memory there is"
    pool.alloc(2 * MIB)
    pool.limit = MIB
    assert pool.limit == MIB
    with pytest.raises(OutOfMemoryError):
        pool.alloc(MIB)
    pool.limit = None
    pool.alloc(MIB)
    with pytest.raises(PoolUsageError, match="`limit` is -1"):
        pool.limit = -1


def test_callbacks_from_many_threads() -> None:
    pool, high, low = InstrumentedPool(UNBINNED), list[int](), list[int]()
    pool.on_high(MIB, high.append, rearm=KIB)
    pool.on_low(KIB, low.append, rearm=MIB)

    def work() -> None:
        for n in range(300):
            pool.free(pool.alloc(MIB + n))

    at_once(*[work] * 4)
    assert 0 < len(high) <= 1200
    assert abs(len(high) - len(low)) <= 1, "between two calls of one there is one of the other"
    assert pool.statistics().live == 0


def test_closing_lets_callbacks_go() -> None:
    pool = InstrumentedPool()

    def call(*_: object) -> bool:
        return pool.closed

    gone = weakref.ref(call)
    pool.on_high(MIB, call)
    pool.on_oom(call)
    del call
    gc.collect()
    assert gone() is not None
    assert pool.close() == ()
    gc.collect()
    assert gone() is None


def _watched(calls: list[int]) -> tuple[weakref.ref[InstrumentedPool], object]:
    """A pool that nobody keeps, whose callbacks refer to it, and a tensor of it."""
    pool = InstrumentedPool(limit=MIB)

    def call(in_use: int, *_: object) -> bool:
        calls.append(pool.statistics().live)
        return False

    pool.on_high(1, call)
    pool.on_oom(call)
    pool.alloc(64)
    with pytest.raises(OutOfMemoryError):
        pool.alloc(2 * MIB)
    return weakref.ref(pool), pool.empty((4,), "int8")


def test_callbacks_that_refer_to_their_pool_do_not_keep_it() -> None:
    calls = list[int]()
    pool, kept = _watched(calls)
    assert calls == [64, 64]
    gc.collect()
    assert pool() is None
    del kept
    assert calls == [64, 64]


def test_an_interrupt_in_a_destructor_reaches_the_main_thread() -> None:
    pool = InstrumentedPool(bin_capacity=0)
    tensor = pool.empty((MIB,), "int8")

    def interrupt(in_use: int) -> None:
        raise KeyboardInterrupt

    pool.on_low(10, interrupt)
    with pytest.raises(KeyboardInterrupt):  # it comes a little later
        del tensor
        for _ in range(10_000):
            sleep(0.001)


def test_an_exit_in_a_destructor_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    pool = InstrumentedPool(bin_capacity=0)
    tensor = pool.empty((MIB,), "int8")

    def leave(in_use: int) -> None:
        raise SystemExit("leaving")

    pool.on_low(10, leave)
    del tensor
    said = capfd.readouterr().err
    assert "a callback that the end of a tensor has called raised" in said
    assert "SystemExit: leaving" in said


def test_leaks_are_told_by_tag() -> None:
    pool = InstrumentedPool()
    assert pool.leaks() == ()
    first, _, third = pool.alloc(100, tag="a"), pool.alloc(50, tag="a"), pool.alloc(70)
    tensor = pool.empty((10,), "float64", tag="out float64[10]")
    nameless = pool.empty((3,), "int8")
    assert pool.leaks() == (
        Holding(tag="a", blocks=2, nbytes=150),
        Holding(tag="out float64[10]", blocks=1, nbytes=80),
        Holding(tag="", blocks=2, nbytes=73),
    )
    assert sorted(pool.holders()) == [("", 3), ("", 70), ("a", 50), ("a", 100), ("out float64[10]", 80)]
    pool.free(first)
    pool.free(third)
    del tensor, nameless
    assert pool.leaks() == (Holding(tag="a", blocks=1, nbytes=50),)


def test_a_pool_that_is_left_with_live_blocks_warns() -> None:
    with (
        pytest.warns(
            LeakWarning,
            match=r"^80 bytes in 2 blocks of the pool are not freed: `kept` 50 bytes in 1 block, "
            r"without a tag 30 bytes in 1 block$",
        ),
        InstrumentedPool() as pool,
    ):
        kept = pool.alloc(50, tag="kept")
        pool.alloc(30)
        pool.free(pool.alloc(1000))
    pool.free(kept)
    with pytest.raises(PoolUsageError, match="the pool is closed"):
        pool.alloc(1)
    with pytest.raises(PoolUsageError, match="the pool is closed"):
        pool.empty((1,), "int8")
    assert [h.nbytes for h in pool.close()] == [30], "closing again is harmless, and silent"


def test_a_pool_that_is_left_clean_is_silent_and_empty() -> None:
    with InstrumentedPool() as pool:
        pool.free(pool.alloc(3 * MIB))
    assert pool.reserved == 0


def test_peaks_can_be_counted_anew() -> None:
    pool = InstrumentedPool(UNBINNED)
    pool.free(pool.alloc(4 * MIB))
    pool.trim()
    pool.reset_peak()
    assert (pool.statistics().peak_used, pool.statistics().peak_reserved) == (0, 0)
    kept = pool.alloc(MIB)
    counted = pool.statistics()
    assert (counted.peak_used, counted.peak_reserved) == (MIB, MIB)
    pool.free(kept)


def test_a_snapshot_shows_where_everything_lies() -> None:
    pool = InstrumentedPool(replace(UNBINNED, page=4096, soft_limit=None))
    first, second, third = (pool.alloc(n, tag=t) for n, t in ((8192, "a"), (4096, ""), (8192, "c")))
    pool.free(second)
    snapshot = pool.snapshot()
    assert snapshot.backed == ((0, 20480),)
    assert snapshot.free == ((8192, 12288), (20480, pool.options.capacity))
    assert {(b.tag, b.nbytes) for b in snapshot.blocks} == {("a", 8192), ("c", 8192)}
    assert {b.pointer for b in snapshot.blocks} == {first.pointer, third.pointer}
    assert snapshot.statistics.live == 16384


def test_a_recording_has_calls_tags_and_times(tmp_path: Path) -> None:
    pool = InstrumentedPool()
    recording = pool.record()
    with pool.call():
        inside = pool.alloc(100, tag="temp")
        result = pool.empty((5,), "float32", tag="result float32[5]")
        pool.free(inside)
    outside = pool.alloc(7)
    with pool.call():
        pool.free(pool.alloc(8))
    del result
    trace = recording.stop()
    pool.free(outside)
    assert trace.events == (
        CallBegin(call=1),
        Alloc(block=1, nbytes=100, call=1),
        Alloc(block=2, nbytes=20, call=1),
        Free(block=1),
        CallEnd(call=1),
        Alloc(block=3, nbytes=7),
        CallBegin(call=2),
        Alloc(block=4, nbytes=8, call=2),
        Free(block=4),
        CallEnd(call=2),
        Free(block=2),
    )
    assert trace.tags == {1: "temp", 2: "result float32[5]"}
    assert len(trace.times) == len(trace.events)
    path = tmp_path / "trace.json"
    path.write_bytes(trace_as_json(trace))
    assert read_trace(path) == trace
    timeline = timeline_of(trace)
    assert {timeline.name(number) for number in timeline.blocks} >= {"temp", "result float32[5]", "block 3"}


def test_calls_of_threads_are_their_own() -> None:
    pool = InstrumentedPool()
    recording = pool.record()

    def work() -> None:
        for _ in range(50):
            with pool.call():
                pool.free(pool.alloc(64))

    at_once(*[work] * 4)
    events = recording.stop().events
    calls = [e.call for e in events if isinstance(e, Alloc)]
    assert sorted(calls) == list(range(1, 201)), "each call has just its own block"


def test_recording_survives_a_fork() -> None:
    pool = InstrumentedPool()
    recording = pool.record()
    kept = pool.alloc(64, tag="x")

    def work() -> None:
        pool.free(kept)
        assert len(recording.stop().events) == 2

    survives(work)
    assert len(recording.stop().events) == 1


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


def test_what_does_not_fit_ends_a_timeline_and_a_replay() -> None:
    trace = Trace(name="t", events=tuple(Alloc(block=i, nbytes=MIB) for i in range(3)))
    options = PoolOptions(limit=2 * MIB)
    timeline, result = timeline_of(trace, options), replay(trace, "pool", options)
    for failed in (timeline.failed, result.out_of_memory):
        assert failed is not None and failed.startswith("event 2: 1048576 bytes do not fit")
    assert (len(timeline.moments), timeline.statistics.refused) == (2, 1)
    assert (result.operations, result.peak_reserved) == (2, 2 * MIB)


def test_nothing_at_all() -> None:
    trace = Trace(name="empty", events=())
    timeline, result = timeline_of(trace), replay(trace, "pool", PoolOptions())
    assert (timeline.moments, timeline.statistics.live) == ((), 0)
    assert (result.ratio, result.peak_reserved, result.operations) == (1.0, 0, 0)

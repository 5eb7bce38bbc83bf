"""Sessions of a pool, statistics of scopes, watermarks."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from symalloc.pool import statistics
from symalloc.pool.instrumented_pool import Holding, InstrumentedPool
from symalloc.pool.native_pool import BlockHandle, PoolStatistics
from symalloc.pool.pool_errors import OutOfMemoryError, PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.statistics_scope import TagCount, prometheus_text
from tests.pool.processes import at_once

KIB, MIB = 2**10, 2**20


def test_a_budget_is_held_although_the_pool_has_room() -> None:
    pool = InstrumentedPool(limit=64 * MIB)
    with pool.session("request", limit="1MiB") as session:
        pool.alloc(600 * KIB, tag="cache")
        with pytest.raises(OutOfMemoryError) as refused:
            pool.alloc(500 * KIB)
        kept = pool.empty((400 * KIB,), "uint8", tag="weights")
    assert str(refused.value) == (
        "512000 bytes do not fit into the session `request`, whose limit is 1048576: 614400 are held\n"
        "  help: raise the limit of the session by 77824 bytes, or free as much, or run at smaller shapes\n"
        "  held: `cache` 614400 bytes in 1 block"
    )
    pool.alloc(MIB)
    assert session.holdings() == (
        Holding(tag="cache", blocks=1, nbytes=600 * KIB),
        Holding(tag="weights", blocks=1, nbytes=400 * KIB),
    )
    counted = session.statistics()
    assert (counted.live, counted.allocs, counted.frees, counted.refused) == (1000 * KIB, 2, 0, 1)
    del kept
    assert (session.statistics().live, session.statistics().peak_live) == (600 * KIB, 1000 * KIB)
    assert pool.statistics().refused == 1


def test_what_does_not_fit_into_the_pool_names_the_session_too() -> None:
    pool = InstrumentedPool(limit=MIB)
    pool.alloc(512 * KIB, tag="elsewhere")
    with pool.session("outer"), pool.session("request 17", limit=2 * MIB) as session:
        pool.alloc(256 * KIB, tag="cache")
        for timeout in (None, 0.001):
            with pytest.raises(OutOfMemoryError) as refused:
                pool.alloc(512 * KIB, timeout=timeout)
            first, *others = str(refused.value).splitlines()
            assert first.startswith("524288 bytes do not fit under the limit of 1048576: 786432 are in use")
            assert "  session: `request 17` holds 262144 bytes of the 2097152 that it may" in others
            assert "  held: `elsewhere` 524288 bytes in 1 block, `cache` 262144 bytes in 1 block" in others
    counted = session.statistics()
    assert (counted.live, counted.peak_live, counted.refused) == (256 * KIB, 256 * KIB, 2)
    with pytest.raises(OutOfMemoryError) as refused:
        pool.alloc(512 * KIB)
    assert "session" not in str(refused.value)


@pytest.mark.parametrize("guard", (False, True))
def test_an_inner_session_is_charged_to_the_outer_one_in_every_thread(guard: bool) -> None:
    pool = InstrumentedPool(guard=guard)
    with pool.session("outer", limit=1000) as outer, pool.session("inner") as inner:
        first = pool.alloc(300)

    def work() -> None:
        with inner:
            pool.alloc(300)
            with pytest.raises(OutOfMemoryError, match="session `outer`"):
                pool.alloc(401)
        with pool.session("other", limit=0) as other, outer:
            with pytest.raises(OutOfMemoryError, match="session `other`"):
                pool.alloc(1)
            other.limit = None
            pool.alloc(1)

    at_once(work, lambda: pool.alloc(10_000))
    assert (outer.statistics().live, inner.statistics().live) == (601, 600)
    first.free()
    assert (outer.statistics().live, inner.statistics().live) == (301, 300)
    outer.limit = 200
    with outer, pytest.raises(OutOfMemoryError, match="raise the limit of the session by 101 bytes"):
        pool.alloc(0)


def test_threads_share_a_session() -> None:
    pool = InstrumentedPool()
    session = pool.session("shared", limit=40 * KIB)

    def work() -> None:
        with session:
            for n in range(500):
                try:
                    pool.free(pool.alloc(n * 97 % (30 * KIB)))
                except OutOfMemoryError:
                    assert session.statistics().live <= 40 * KIB

    at_once(*[work] * 4)
    counted = session.statistics()
    assert (counted.live, counted.allocs + counted.refused) == (0, 2000)
    assert counted.allocs == counted.frees and counted.peak_live <= 40 * KIB


def test_a_session_of_a_pool_that_is_closed_stays_readable() -> None:
    pool = InstrumentedPool()
    with pool.session("late") as session:
        block = pool.alloc(100)
        with pytest.warns(RuntimeWarning, match="100 bytes"):
            pool.close()
        assert session.statistics().live == 100
    block.free()
    assert session.statistics().live == 0


def test_leaving_what_was_not_entered_is_refused() -> None:
    session = InstrumentedPool().session("s")
    with pytest.raises(PoolUsageError, match="not in the session `s`"):
        session.__exit__(None, None, None)


@pytest.mark.parametrize("seed", range(12))
def test_blocks_are_charged_to_the_sessions_that_their_thread_was_in(seed: int) -> None:
    dice, pool = random.Random(seed), InstrumentedPool()
    sessions = [pool.session(f"s{i}") for i in range(4)]
    live: list[tuple[BlockHandle, list[int]]] = []
    charged = [Counter[str]() for _ in sessions]
    for _ in range(60):
        entered = dice.sample(range(4), dice.randrange(3))
        with ExitStack() as stack:
            for index in entered:
                stack.enter_context(sessions[index])
            for _ in range(dice.randrange(12)):
                if live and dice.random() < 0.45:
                    block, owners = live.pop(dice.randrange(len(live)))
                    change, counted = -block.nbytes, "frees"
                    at_once(block.free) if dice.random() < 0.2 else block.free()
                else:
                    block, owners = pool.alloc(dice.randrange(2**21)), entered
                    change, counted = block.nbytes, "allocs"
                    live.append((block, owners))
                for count in (charged[owner] for owner in owners):
                    count["live"] += change
                    count[counted] += 1
        for session, count in zip(sessions, charged, strict=True):
            now = session.statistics()
            assert (now.live, now.allocs, now.frees) == (count["live"], count["allocs"], count["frees"])


UNBINNED = PoolOptions(bin_capacity=0)


def test_what_happens_within_is_counted_by_tag() -> None:
    pool = InstrumentedPool(UNBINNED)
    before = pool.alloc(MIB, tag="old")
    with statistics(pool) as counted:
        first = pool.alloc(3 * MIB, tag="x")
        pool.free(pool.alloc(MIB, tag="x"))
        pool.free(first)
        pool.free(before)
        kept = pool.empty((10,), "int8")
        assert counted.figures().tags[""].left == 10, "figures can be read while it goes on"
    after = pool.alloc(64 * MIB)
    figures = counted.figures()
    assert figures.tags == {
        "x": TagCount(allocs=2, allocated=4 * MIB, frees=2, freed=4 * MIB, left=0, peak=4 * MIB),
        # of `old` the tag stood with its handle, where no scope looks
        "": TagCount(allocs=1, allocated=10, left=10, peak=10, frees=1, freed=MIB),
    }
    assert (figures.total.allocs, figures.live) == (3, 10)
    assert figures.peak_live == figures.peak_used == figures.peak_reserved == 5 * MIB
    pool.free(after)
    del kept


def test_peaks_are_of_the_part_alone_and_parts_may_overlap() -> None:
    pool = InstrumentedPool(UNBINNED, soft_limit=None)
    pool.free(pool.alloc(8 * MIB))
    pool.trim()
    outer, inner = statistics(pool), statistics(pool)
    first = outer.__enter__()
    pool.free(pool.alloc(4 * MIB))
    second = inner.__enter__()
    pool.free(pool.alloc(2 * MIB))
    outer.__exit__(None, None, None)
    pool.free(pool.alloc(3 * MIB))
    inner.__exit__(None, None, None)
    assert (first.figures().peak_used, second.figures().peak_used) == (4 * MIB, 3 * MIB)
    assert (first.figures().peak_live, second.figures().peak_live) == (4 * MIB, 3 * MIB)
    assert pool.statistics().peak_used == 8 * MIB, "those of the pool itself go on"


def test_small_blocks_that_wait_in_bins_are_counted_exactly() -> None:
    pool = InstrumentedPool()
    for block in [pool.alloc(KIB) for _ in range(100)]:
        pool.free(block)
    with statistics(pool) as counted:
        for block in [pool.alloc(KIB) for _ in range(70)]:
            pool.free(block)
    total = counted.figures().total
    assert (counted.figures().peak_live, total.allocs, total.left) == (70 * KIB, 70, 0)


def test_without_a_pool_it_is_all_of_them() -> None:
    one, two = InstrumentedPool(), InstrumentedPool()
    with statistics() as counted:
        blocks = one.alloc(100, tag="a"), two.alloc(50, tag="a")
    assert counted.figures().tags["a"].allocated == 150
    assert counted.figures().tags["a"].allocs == 2
    one.free(blocks[0])
    two.free(blocks[1])


def test_every_thread_counts() -> None:
    pool = InstrumentedPool()

    def work() -> None:
        for n in range(400):
            pool.free(pool.alloc(n, tag=f"t{n % 3}"))

    with statistics(pool) as counted:
        at_once(*[work] * 4)
    total = counted.figures().total
    assert total.allocs == total.frees == 1600
    assert total.allocated == total.freed == 4 * sum(range(400))
    assert total.left == 0
    assert set(counted.figures().tags) == {"t0", "t1", "t2"}


def test_an_error_within_ends_the_count() -> None:
    pool = InstrumentedPool()
    with pytest.raises(KeyError), statistics(pool) as counted:
        kept = pool.alloc(8)
        raise KeyError
    pool.free(kept)
    assert counted.figures().total == TagCount(allocs=1, allocated=8, left=8, peak=8)


METRIC = re.compile(r"# HELP (\S+) .{6,}\n# TYPE \1 (counter|gauge)\n((?:\1\{.*\n)+)")
SAMPLE = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*\{pool="((?:[^"\\\n]|\\["\\n])*)"\} (\d+)\n')


def _parsed(text: str) -> dict[str, dict[str, int]]:
    """Values by metric and pool; the text is one block for each metric, a HELP and a TYPE in front."""
    metrics: dict[str, dict[str, int]] = {}
    found = list(METRIC.finditer(text))
    assert "".join(metric[0] for metric in found) == text
    for name, kind, samples in (metric.groups() for metric in found):
        assert kind == ("counter" if name.endswith("_total") else "gauge") and name not in metrics
        matches = list(SAMPLE.finditer(samples))
        assert "".join(match[0] for match in matches) == samples
        labels = (re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[1]) for match in matches)
        metrics[name] = {label: int(match[2]) for label, match in zip(labels, matches, strict=True)}
    return metrics


def _statistics(start: int) -> PoolStatistics:
    return PoolStatistics(**{f.name: start + i for i, f in enumerate(fields(PoolStatistics))})


def test_every_field_is_a_metric() -> None:
    metrics = _parsed(prometheus_text({"a": _statistics(100), "b": _statistics(200)}, {"a": 4096, "b": None}))
    shown = {name: values for name, values in metrics.items() if name != "symalloc_pool_limit_bytes"}
    assert sorted(v["a"] for v in shown.values()) == [100 + i for i in range(len(fields(PoolStatistics)))]
    assert all(v["b"] == v["a"] + 100 for v in shown.values())
    assert metrics["symalloc_pool_limit_bytes"] == {"a": 4096}
    assert all(name.startswith("symalloc_pool_") for name in metrics)


def test_labels_are_escaped() -> None:
    names = dict.fromkeys(('quo"te', "back\\slash", "two\nlines", "Straße"), _statistics(0))
    assert _parsed(prometheus_text(names))["symalloc_pool_live_bytes"] == dict.fromkeys(names, 0)


# where a mark is, what rearms it, what moves in front of it and behind it: n allocates n MiB, -n frees them
MARKS: dict[str, tuple[str, float | Fraction, int | None, list[int], list[int], list[int]]] = {
    "high": ("on_high", 4 * MIB, 2 * MIB, [], [*[1] * 6, *[-1] * 3, 1, 1, *[-1] * 3, 3], [4, 5]),
    "low": ("on_low", MIB, 3 * MIB, [], [1, 1, -1, 1, 1, 1, *[-1] * 4], [1]),
    "beyond it already": ("on_high", 2 * MIB, None, [4], [1, -4, -1, 2], [2]),
    "a share of the limit": ("on_high", 0.5, None, [], [1] * 10, [5]),
    "another share": ("on_high", Fraction(9, 10), None, [], [1] * 10, [9]),
}


@pytest.mark.parametrize("name", MARKS)
def test_a_mark_fires_once_until_it_is_left(name: str) -> None:
    method, at, rearm, before, after, seen = MARKS[name]
    pool, fired = InstrumentedPool(UNBINNED, limit=10 * MIB), list[int]()
    blocks: dict[int, list[BlockHandle]] = {}
    for moves in (before, after):
        for move in moves:
            if move > 0:
                blocks.setdefault(move, []).append(pool.alloc(move * MIB))
            else:
                pool.free(blocks[-move].pop())
        if moves is before:
            getattr(pool, method)(at, fired.append, rearm=rearm)
    assert fired == [count * MIB for count in seen]


@pytest.mark.parametrize(
    ("high", "at", "rearm", "says"),
    (
        (True, 1.5, None, "a share of the limit from 0 to 1\\) is 1.5"),
        (True, 2**63, None, "at most 4611686018427387904"),
        (True, 100, 100, "rearms below itself, not at 100"),
        (False, 100, 100, "rearms above itself, not at 100"),
    ),
)
def test_marks_that_make_no_sense(high: bool, at: float, rearm: int | None, says: str) -> None:
    pool = InstrumentedPool()
    with pytest.raises(PoolUsageError, match=says):
        (pool.on_high if high else pool.on_low)(at, print, rearm=rearm)


def test_what_a_callback_raises_is_said_and_goes_no_further(capfd: pytest.CaptureFixture[str]) -> None:
    pool = InstrumentedPool(UNBINNED)

    def fail(in_use: int) -> None:
        raise RuntimeError(f"cannot cope with {in_use}")

    pool.on_high(MIB, fail)
    block = pool.alloc(2 * MIB)
    said = capfd.readouterr().err
    assert said.startswith("symalloc: a callback at a watermark failed; the pool goes on:")
    assert "RuntimeError: cannot cope with 2097152" in said
    pool.free(block)
    pool.alloc(2 * MIB)
    assert "cannot cope" in capfd.readouterr().err, "it is called again"


def test_a_callback_may_use_the_pool() -> None:
    pool, blocks, seen = InstrumentedPool(UNBINNED), list[int](), list[int]()

    def shed(in_use: int) -> None:
        seen.append(in_use)
        while len(blocks) > 1:
            pool.free(blocks.pop(0))
        pool.free(pool.alloc(64 * MIB))  # passes its own mark, while it runs

    pool.on_high(4 * MIB, shed)
    for _ in range(12):
        blocks.append(pool.alloc(MIB))
    assert seen == [4 * MIB] * 5, "each time it leaves one block and the new one"


def test_a_mark_that_is_cancelled_in_a_callback_is_called_no_more() -> None:
    pool, seen, marks = InstrumentedPool(UNBINNED), list[str](), dict[str, Any]()

    def cancelling(name: str, *gone: str) -> Callable[[int], None]:
        def call(in_use: int) -> None:
            seen.append(name)
            for each in gone:
                marks[each].cancel()

        return call

    marks["first"] = pool.on_high(MIB, cancelling("first", "second", "first"))
    marks["second"] = pool.on_high(MIB, cancelling("second"))
    marks["third"] = pool.on_high(MIB, cancelling("third", "third"))
    for _ in range(3):
        pool.free(pool.alloc(2 * MIB))
    assert seen == ["first", "third"], "the second was due when the first cancelled it"


class _Stop(BaseException):
    pass


@pytest.mark.parametrize("error", (KeyboardInterrupt("now"), SystemExit(3), _Stop("my own")))
@pytest.mark.parametrize("guard", (False, True))
def test_what_is_no_exception_passes_through_callbacks(error: BaseException, guard: bool) -> None:
    pool, seen = InstrumentedPool(UNBINNED, limit=4 * MIB, guard=guard), list[int]()

    def stop(*_: object) -> bool:
        raise error

    first = pool.on_high(MIB, stop)
    pool.on_high(MIB, seen.append)
    for allocate in (partial(pool.alloc, 2 * MIB), partial(pool.empty, (2 * MIB,), "uint8", tag="x")):
        with pytest.raises(type(error)) as raised:
            allocate()
        assert raised.value is error
    assert pool.statistics().live == 0, "nobody has got a block"
    first.cancel()
    pool.free(pool.alloc(2 * MIB))
    assert seen, "it has stayed due"
    pool.on_low(MIB, stop)
    block = pool.alloc(2 * MIB)
    with pytest.raises(type(error)):
        pool.free(block)
    assert pool.statistics().live == 0
    pool.on_oom(stop)
    with pytest.raises(type(error)):
        pool.alloc(8 * MIB)
    assert pool.statistics().refused == 1


def test_callbacks_for_want_of_memory_nest_across_pools() -> None:
    pools = [InstrumentedPool(UNBINNED, limit=MIB) for _ in range(3)]
    asked: list[int] = []

    def asking(index: int) -> Callable[[int, int, str], bool]:
        def ask(nbytes: int, tries: int, why: str) -> bool:
            asked.append(index)
            with pytest.raises(OutOfMemoryError):
                pools[(index + 1) % 3].alloc(nbytes)
            return False

        return ask

    for index, pool in enumerate(pools):
        pool.on_oom(asking(index))
    with pytest.raises(OutOfMemoryError):
        pools[1].alloc(2 * MIB)
    assert asked == [1, 2, 0], "each pool asks once; the second pool's own callback is running"


def test_for_want_of_memory_it_is_asked_and_tried_again() -> None:
    pool = InstrumentedPool(UNBINNED, limit=4 * MIB)
    blocks, asked = [pool.alloc(MIB) for _ in range(4)], list[tuple[int, int, str]]()

    def give(nbytes: int, tries: int, why: str) -> bool:
        asked.append((nbytes, tries, why.splitlines()[0]))
        pool.free(blocks.pop())
        return True

    pool.on_oom(give)
    pool.alloc(3 * MIB)
    assert [(nbytes, tries) for nbytes, tries, _ in asked] == [(3 * MIB, 0), (3 * MIB, 1), (3 * MIB, 2)]
    assert asked[0][2] == (
        "3145728 bytes do not fit under the limit of 4194304: 4194304 are in use, 4194304 reserved"
    )


def test_retries_are_bounded() -> None:
    pool, asked = InstrumentedPool(UNBINNED, limit=MIB), list[int]()
    pool.on_oom(lambda nbytes, tries, why: asked.append(tries) or True, retries=3)
    with pytest.raises(OutOfMemoryError, match="2097152 bytes do not fit"):
        pool.alloc(2 * MIB)
    assert asked == [0, 1, 2]
    pool.on_oom(None)
    with pytest.raises(OutOfMemoryError):
        pool.alloc(2 * MIB)
    assert asked == [0, 1, 2]


def test_a_failing_callback_is_named_by_the_error() -> None:
    pool = InstrumentedPool(UNBINNED, limit=MIB)

    def fail(nbytes: int, tries: int, why: str) -> bool:
        raise KeyError("cache")

    pool.on_oom(fail)
    with pytest.raises(OutOfMemoryError, match="the on_oom callback failed: KeyError: 'cache'"):
        pool.alloc(2 * MIB)
    pool.free(pool.alloc(MIB))

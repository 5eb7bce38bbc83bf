from __future__ import annotations

import re
from dataclasses import fields

import pytest

from symalloc.pool import statistics
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.native_pool import PoolStatistics
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.statistics_scope import TagCount, prometheus_text
from tests.pool.processes import at_once

KIB, MIB = 2**10, 2**20
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
    assert (
        counted.figures().tags
        == {
            "x": TagCount(allocs=2, allocated=4 * MIB, frees=2, freed=4 * MIB, left=0, peak=4 * MIB),
            "": TagCount(allocs=1, allocated=10, left=10, peak=10, frees=0, freed=0),
            "old": TagCount(frees=1, freed=MIB),
        }
        or counted.figures().tags[""].frees == 1
    )
    assert counted.figures().total.allocs == 3
    assert counted.figures().peak_live == 5 * MIB
    assert (counted.figures().peak_used, counted.figures().peak_reserved) == (5 * MIB, 5 * MIB)
    assert counted.figures().live == 10
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
    assert (counted.figures().peak_live, counted.figures().total.allocs, counted.figures().total.left) == (
        70 * KIB,
        70,
        0,
    )


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
    assert counted.figures().total.allocs == counted.figures().total.frees == 1600
    assert counted.figures().total.allocated == counted.figures().total.freed == 4 * sum(range(400))
    assert counted.figures().total.left == 0
    assert set(counted.figures().tags) == {"t0", "t1", "t2"}


def test_an_error_within_ends_the_count() -> None:
    pool = InstrumentedPool()
    with pytest.raises(KeyError), statistics(pool) as counted:
        kept = pool.alloc(8)
        raise KeyError
    pool.free(kept)
    assert counted.figures().total == TagCount(allocs=1, allocated=8, left=8, peak=8)


SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{pool="((?:[^"\\\n]|\\["\\n])*)"\} (\d+)')


def _parsed(text: str) -> dict[str, dict[str, int]]:
    """Values by metric and pool; every metric must be introduced by one HELP and one TYPE, in that order."""
    metrics: dict[str, dict[str, int]] = {}
    assert text.endswith("\n")
    lines = iter(text.splitlines())
    current = kind = ""
    for line in lines:
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in metrics, "samples of a metric stand together"
            assert len(line.split(" ", 3)[3]) > 5
            metrics[current] = {}
            typed = next(lines).split(" ")
            assert typed[:3] == ["#", "TYPE", current]
            kind = typed[3]
            assert kind == ("counter" if current.endswith("_total") else "gauge")
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match[1] == current
        label = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[2])
        metrics[current][label] = int(match[3])
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


@pytest.mark.parametrize("name", ('quo"te', "back\\slash", "two\nlines", "plain", "Straße"))
def test_labels_are_escaped(name: str) -> None:
    assert _parsed(prometheus_text({name: _statistics(0)}))["symalloc_pool_live_bytes"] == {name: 0}


def test_of_a_pool() -> None:
    pool = InstrumentedPool(limit=4 * MIB)
    kept = pool.alloc(3 * MIB)
    metrics = _parsed(prometheus_text({"serving": pool.statistics()}, {"serving": pool.limit}))
    assert metrics["symalloc_pool_live_bytes"]["serving"] == 3 * MIB
    assert metrics["symalloc_pool_allocations_total"]["serving"] == 1
    assert metrics["symalloc_pool_limit_bytes"]["serving"] == 4 * MIB
    pool.free(kept)

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings

from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.replaying import POLICIES, replay, total
from symalloc.pool.trace import Alloc, Free, Trace
from tests.pool.steps import STEPS, Step, as_trace, peak_live
from tests.pool.workloads import WORKLOADS, make_trace
from tests.scale import part

MIB = 2**20


@settings(max_examples=30)
@given(steps=STEPS)
def test_every_policy_replays_every_trace(steps: list[Step]) -> None:
    trace = as_trace(steps)
    left = {e.block: e.nbytes for e in trace.events if isinstance(e, Alloc)}
    for event in trace.events:
        if isinstance(event, Free):
            del left[event.block]
    for policy in POLICIES:
        result = replay(trace, policy, PoolOptions())
        assert result.peak_live == peak_live(trace)
        assert result.operations == len(trace.events)
        assert result.peak_reserved >= result.peak_live
        assert result.left_live == sum(left.values())
        assert result.out_of_memory is None


@pytest.mark.parametrize("limit", (Fraction(11, 10), Fraction(21, 20)))
def test_a_soft_limit_holds_on_traces_of_servers_and_training(limit: Fraction) -> None:
    """Each trace ends just above its limit at most: a page of the pool may be shared by two blocks."""
    results = [replay(make_trace(w, 11), "pool", PoolOptions(soft_limit=limit)) for w in part(WORKLOADS, 2)]
    assert all(r.ratio <= limit + Fraction(1, 50) for r in results), [r.ratio for r in results]
    assert total(results).mean <= limit


def test_the_pool_reserves_less_than_the_others() -> None:
    traces = [make_trace(w, 5) for w in ("decode", "images-batched", "llm-batched", "mixed")]
    means = {p: total([replay(t, p, PoolOptions()) for t in traces]).mean for p in POLICIES}
    assert means.pop("pool") < min(means.values())


def test_running_out_of_memory_is_reported_and_ends_the_replay() -> None:
    trace = Trace(name="grow", events=tuple(Alloc(block=i, nbytes=MIB) for i in range(8)))
    result = replay(trace, "pool", PoolOptions(limit=4 * MIB))
    assert result.out_of_memory is not None
    assert result.out_of_memory.startswith("event 4: 1048576 bytes do not fit")
    assert (result.operations, result.peak_reserved) == (4, 4 * MIB)


def test_an_empty_trace() -> None:
    result = replay(Trace(name="empty", events=()), "pool", PoolOptions())
    assert (result.ratio, result.peak_reserved, result.operations) == (1.0, 0, 0)


def test_the_mean_is_geometric() -> None:
    one = Trace(name="one", events=(Alloc(block=0, nbytes=1024),))  # 4096 reserved
    four = Trace(name="four", events=(Alloc(block=0, nbytes=4096),))
    summary = total([replay(t, "exact-size", PoolOptions()) for t in (one, four)])
    assert summary.mean == pytest.approx(2)
    assert summary.worst == 4

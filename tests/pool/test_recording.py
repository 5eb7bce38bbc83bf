from __future__ import annotations

import random
from pathlib import Path

import pytest

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.trace import Alloc, CallEnd, Free, read_trace, trace_as_json

pytestmark = pytest.mark.usefixtures("native")


def test_the_last_events_are_kept() -> None:
    pool = InstrumentedPool()
    with pool.record(most=4) as recording:
        old = pool.alloc(1, tag="old")
        for n in (10, 20, 30):
            pool.free(pool.alloc(n, tag=f"n{n}"))
        assert recording.dropped == 3
        old.free()
    pool.alloc(5)
    trace = recording.trace
    assert trace.events == (Alloc(block=4, nbytes=30), Free(block=4))
    assert trace.tags == {4: "n30"}
    assert recording.dropped == 6
    assert trace.meta == {"dropped": 6}, "two of those that are kept belong to blocks that were dropped"


def test_a_call_that_began_before_is_left_out() -> None:
    pool = InstrumentedPool()
    recording = pool.record(most=2)
    with pool.call():
        pool.alloc(1)
        pool.alloc(2)
    trace = recording.stop()
    assert trace.events == (Alloc(block=2, nbytes=2),)
    assert not any(isinstance(event, CallEnd) for event in trace.events)
    assert recording.dropped == 3


@pytest.mark.parametrize("seed", range(6))
def test_a_bounded_recording_is_the_end_of_a_whole_one(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    whole, bounded = InstrumentedPool(), InstrumentedPool()
    most = dice.randrange(1, 60)
    entire, recent = whole.record(), bounded.record(most)
    live: list[tuple[int, int]] = []
    for n in range(200):
        if live and dice.random() < 0.5:
            one, other = live.pop(dice.randrange(len(live)))
            whole.free(one)
            bounded.free(other)
        else:
            live.append((whole.alloc(n, tag=str(n)), bounded.alloc(n, tag=str(n))))
    everything, last = entire.stop(), recent.stop()
    allocated = {e.block for e in everything.events[-most:] if isinstance(e, Alloc)}
    expected = [e for e in everything.events[-most:] if isinstance(e, Alloc | Free) and e.block in allocated]
    assert list(last.events) == expected
    assert last.meta == {"dropped": 200 - len(expected)}
    assert last.tags == {block: everything.tags[block] for block in allocated}
    path = tmp_path / "trace.json"
    path.write_bytes(trace_as_json(last))
    assert read_trace(path) == last

"""A timeline in the Trace Event Format (JSON), which Perfetto and chrome://tracing open.

Format: "Trace Event Format", Google, 2016.  Counters show bytes over time; every block is a slice from its
allocation to its free.  Slices of one thread must nest, so that blocks are laid on as many threads ("lanes")
as there are live at most, each on the lowest one that is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import msgspec

from symalloc.pool.simulating.pool_timeline import Lifespan, PoolTimeline

MICROSECOND = 1000  # nanoseconds
COUNTERS, CALLS, BLOCKS = 1, 2, 3  # process ids

_Record = dict[str, object]


def perfetto_json(timeline: PoolTimeline) -> bytes:
    """The contents of a JSON file; times are microseconds, sizes bytes."""
    trace = timeline.trace
    blocks, calls = _ordered(timeline.blocks), _ordered(timeline.calls)
    records = [
        *_process(COUNTERS, f"{trace.name}: memory"),
        *(_process(CALLS, f"{trace.name}: calls") if calls else ()),
        *_process(BLOCKS, f"{trace.name}: blocks"),
        *_counters(timeline),
        *_slices(timeline, CALLS, calls, {c.number: f"call {c.number}" for c in calls}),
        *_slices(timeline, BLOCKS, blocks, {b.number: timeline.name(b.number) for b in blocks}),
    ]
    return msgspec.json.encode(
        {
            "traceEvents": records,
            "displayTimeUnit": "ns",
            "otherData": {"trace": trace.name, "failed": timeline.failed or ""},
        }
    )


def _ordered(lives: dict[int, Lifespan]) -> list[Lifespan]:
    return sorted(lives.values(), key=lambda life: life.begin)


def _process(number: int, name: str) -> Iterator[_Record]:
    yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}


def _counters(timeline: PoolTimeline) -> Iterator[_Record]:
    for moment in timeline.moments:
        yield {
            "ph": "C",
            "name": "bytes",
            "pid": COUNTERS,
            "ts": moment.time / MICROSECOND,
            "args": {"live": moment.live, "reserved": moment.reserved},
        }


def _slices(
    timeline: PoolTimeline, process: int, lives: Iterable[Lifespan], names: dict[int, str]
) -> Iterator[_Record]:
    for lane, life in _on_lanes(lives, timeline.end):
        end = timeline.end if life.end is None else life.end
        arguments: _Record = {"number": life.number, "freed": life.end is not None}
        if process == BLOCKS:
            arguments |= {"bytes": life.nbytes, "address": life.address, "call": life.call}
        yield {
            "ph": "X",
            "name": names[life.number],
            "cat": "call" if process == CALLS else "block",
            "pid": process,
            "tid": lane,
            "ts": life.begin / MICROSECOND,
            "dur": (end - life.begin) / MICROSECOND,
            "args": arguments,
        }


def _on_lanes(lives: Iterable[Lifespan], last: int) -> Iterator[tuple[int, Lifespan]]:
    """Each of `lives`, in the order of their begin, on the lowest lane (from 1) that is free then."""
    busy: list[tuple[int, int]] = []  # end, lane
    free: list[int] = []
    lanes = 0
    for life in lives:
        while busy and busy[0][0] <= life.begin:
            heappush(free, heappop(busy)[1])
        if free:
            lane = heappop(free)
        else:
            lanes += 1
            lane = lanes
        heappush(busy, (last if life.end is None else life.end, lane))
        yield lane, life

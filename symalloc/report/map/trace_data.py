"""The data of a page about an allocation trace: its blocks over time, and what the pool reserved for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from symalloc.pool.replaying import Lifespan, PoolTimeline, TimelinePoint
from symalloc.report.map.formula_table import exact

MOST_BLOCKS = 20_000  # the largest in bytes times their time
MOST_MOMENTS = 20_000  # of more, each stands for several with the most that they had


def trace_data(timeline: PoolTimeline, *, title: str, capacity: int) -> dict[str, Any]:
    """`{"kind": "trace", "title", "timed", "end", "ranges", "blocks", "moments", ...}`.

    Times are nanoseconds since the first event, or numbers of events where the trace has no times.  A block
    is `[name, begin, end, range, offset, bytes, call]`, `end` null where it is never freed; a moment
    `[time, live, used, reserved]`.  `capacity` is the bytes of addresses of one range.
    """
    clock = _Clock(timeline)
    blocks = sorted(timeline.blocks.values(), key=lambda b: -b.nbytes * (clock.end_of(b) - b.begin))
    shown = sorted(blocks[:MOST_BLOCKS], key=lambda b: b.number)
    statistics = timeline.statistics
    moments = timeline.moments
    return {
        "kind": "trace",
        "title": title,
        "name": timeline.trace.name,
        "timed": bool(timeline.trace.times),
        "end": clock.at(timeline.end),
        "blocks": [_block(timeline, clock, block, capacity) for block in shown],
        "all_blocks": len(blocks),
        "moments": [[clock.at(t), *map(exact, sizes)] for t, *sizes in _moments(moments)],
        "all_moments": len(moments),
        "peak": {
            "live": exact(max((m.live for m in moments), default=0)),
            "used": exact(statistics.peak_used),
            "reserved": exact(statistics.peak_reserved),
        },
        "commits": statistics.commits,
        "decommits": statistics.decommits,
        "given_back": exact(statistics.decommitted),
        "failed": timeline.failed,
    }


class _Clock:
    """Times as the page has them: small enough for a browser's numbers."""

    def __init__(self, timeline: PoolTimeline) -> None:
        times = timeline.trace.times
        self.first = times[0] if times else 0
        self.step = 1 if times else 1000  # events are a microsecond apart
        self.last = timeline.end

    def at(self, time: int) -> int:
        return (time - self.first) // self.step

    def end_of(self, block: Lifespan) -> int:
        return self.last if block.end is None else block.end


def _block(timeline: PoolTimeline, clock: _Clock, block: Lifespan, capacity: int) -> list[Any]:
    which, offset = divmod(block.address, capacity)
    end = None if block.end is None else clock.at(block.end)
    name = timeline.name(block.number)
    return [name, clock.at(block.begin), end, which, exact(offset), exact(block.nbytes), block.call]


def _moments(moments: Sequence[TimelinePoint]) -> Iterator[tuple[int, int, int, int]]:
    """Yield time, live, used and reserved; where there are many, the most of several events in a row."""
    each = -(-len(moments) // MOST_MOMENTS) or 1
    for first in range(0, len(moments), each):
        some = moments[first : first + each]
        yield (
            some[0].time,
            max(m.live for m in some),
            max(m.used for m in some),
            max(m.reserved for m in some),
        )

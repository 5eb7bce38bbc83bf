"""A timeline as the snapshot that PyTorch's memory viewer (pytorch.org/memory_viz) opens.

The form is that of `torch.cuda.memory._snapshot()`: `{"segments": [...], "device_traces": [[...]]}`, pickled.
Runs of backed pages are segments, which are mapped and unmapped; a block's tag stands where the viewer shows
the innermost stack frame.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

from symalloc.pool.core.free_list import round_up
from symalloc.pool.core.pool_options import ALIGNMENT
from symalloc.pool.simulating.pool_timeline import Lifespan, PageRun, PoolTimeline

PROTOCOL = 4  # the viewer reads no later one
BASE = 2**32  # of all addresses: the viewer takes 0 for none
STREAM = 1  # the viewer drops 0 from events but not from segments, and then takes them for different ones
DEVICE = 0
MICROSECOND = 1000  # nanoseconds
LARGE = 2**20  # bytes; from here on PyTorch calls a segment large

_Record = dict[str, object]


def memory_viz_pickle(timeline: PoolTimeline) -> bytes:
    """The contents of a `.pickle` file."""
    return pickle.dumps(memory_viz_snapshot(timeline), protocol=PROTOCOL)


def memory_viz_snapshot(timeline: PoolTimeline) -> _Record:
    """Plain dictionaries, lists, strings and integers; addresses and sizes are bytes."""
    live = sorted((b for b in timeline.blocks.values() if b.end is None), key=lambda b: b.address)
    return {
        "segments": [_segment(timeline, run, live) for run in timeline.pages],
        "device_traces": [list(_events(timeline))],
    }


def _size(block: Lifespan) -> int:
    return max(round_up(block.nbytes, ALIGNMENT), ALIGNMENT)


def _frames(timeline: PoolTimeline, block: int) -> list[_Record]:
    return [{"filename": timeline.trace.name, "line": block, "name": timeline.name(block)}]


def _segment(timeline: PoolTimeline, run: PageRun, live: list[Lifespan]) -> _Record:
    inside = [b for b in live if run.start <= b.address < run.end]
    used = sum(_size(b) for b in inside)
    return {
        "device": DEVICE,
        "address": BASE + run.start,
        "total_size": run.end - run.start,
        "allocated_size": used,
        "active_size": used,
        "requested_size": sum(b.nbytes for b in inside),
        "stream": STREAM,
        "segment_type": "large" if run.end - run.start > LARGE else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": True,
        "frames": [],
        "blocks": list(_blocks(timeline, run, inside)),
    }


def _blocks(timeline: PoolTimeline, run: PageRun, inside: list[Lifespan]) -> Iterator[_Record]:
    """Live blocks and what is free between them: the viewer adds their sizes up to addresses."""
    at = run.start
    for block in inside:
        if block.address > at:
            yield _block(at, block.address - at)
        yield _block(block.address, _size(block)) | {
            "requested_size": block.nbytes,
            "state": "active_allocated",
            "frames": _frames(timeline, block.number),
        }
        at = block.address + _size(block)
    if at < run.end:
        yield _block(at, run.end - at)


def _block(address: int, size: int) -> _Record:
    return {"address": BASE + address, "size": size, "requested_size": 0, "state": "inactive", "frames": []}


def _events(timeline: PoolTimeline) -> Iterator[_Record]:
    for moment in timeline.moments:
        time = moment.time // MICROSECOND
        for run in moment.runs:
            action = "segment_map" if run.backed else "segment_unmap"
            yield _event(action, run.start, run.end - run.start, time, [])
        block = timeline.blocks[moment.block]
        frames = _frames(timeline, moment.block)
        for action in ("alloc",) if moment.allocates else ("free_requested", "free_completed"):
            yield _event(action, block.address, block.nbytes, time, frames)


def _event(action: str, address: int, size: int, time: int, frames: list[_Record]) -> _Record:
    return {
        "action": action,
        "addr": BASE + address,
        "size": size,
        "stream": STREAM,
        "time_us": time,
        "frames": frames,
    }

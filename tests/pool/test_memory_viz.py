from __future__ import annotations

import pickle
import pickletools
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings

from symalloc.pool.exports import BASE, memory_viz_pickle, memory_viz_snapshot
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.replaying import timeline_of
from symalloc.pool.trace import Alloc, Free, Trace
from tests.pool.steps import STEPS, Step, as_trace
from tests.pool.workloads import WORKLOADS, make_trace

TIGHT = PoolOptions(soft_limit=Fraction(1), page=4096)
# what the viewer's own unpickler understands
OPCODES = """
    PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE
    EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS
    BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE FRAME
"""
Spans = dict[int, int]  # start -> end


def _unmap(segments: Spans, start: int, end: int) -> None:
    """Takes [start, end) out of the one segment that it must lie in."""
    at = next(s for s, e in segments.items() if s <= start and end <= e)
    until = segments.pop(at)
    segments |= {s: e for s, e in ((at, start), (end, until)) if s < e}


def _map(segments: Spans, start: int, end: int) -> None:
    assert not any(s < end and start < e for s, e in segments.items())
    for s, e in list(segments.items()):
        if e == start or s == end:
            del segments[s]
            start, end = min(s, start), max(e, end)
    segments[start] = end


def _viewed(snapshot: Any) -> int:
    """Goes back through the events as the viewer does; how many moments it has seen."""
    segments, blocks = Spans(), dict[int, int]()
    for segment in snapshot["segments"]:
        address = segment["address"]
        _map(segments, address, address + segment["total_size"])
        for block in segment["blocks"]:
            assert block["address"] == address, "the viewer adds sizes up"
            if block["state"] == "active_allocated":
                blocks[address] = block["requested_size"]
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
    (events,) = snapshot["device_traces"]
    for event in reversed(events):
        address, size = event["addr"], event["size"]
        match event["action"]:
            case "alloc":
                assert blocks.pop(address) == size
            case "free_completed":
                assert address not in blocks
                blocks[address] = size
            case "free_requested":
                assert blocks[address] == size
            case "segment_map":
                _unmap(segments, address, address + size)
            case "segment_unmap":
                _map(segments, address, address + size)
        assert all(any(s <= b and b + n <= e for s, e in segments.items()) for b, n in blocks.items())
    assert (segments, blocks) == ({}, {}), "at the beginning there was nothing"
    return len(events)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_viewer_can_go_back_to_the_beginning(workload: str) -> None:
    trace = make_trace(workload, 3)
    short = Trace(name=trace.name, events=trace.events[:1500])
    timeline = timeline_of(short, TIGHT)
    data = memory_viz_pickle(timeline)
    snapshot = pickle.loads(data)
    assert snapshot == memory_viz_snapshot(timeline)
    assert {op.name for op, _, _ in pickletools.genops(data)} <= set(OPCODES.split())
    assert _viewed(snapshot) >= len(timeline.moments)


@settings(max_examples=40)
@given(STEPS)
def test_random_programs(steps: list[Step]) -> None:
    _viewed(memory_viz_snapshot(timeline_of(as_trace(steps), TIGHT)))


def test_tags_stand_where_frames_are_shown() -> None:
    trace = Trace(
        name="t",
        events=(Alloc(block=1, nbytes=100), Alloc(block=2, nbytes=64), Free(block=1)),
        times=(1000, 3000, 8000),
        tags={2: "main.y float32[16]"},
    )
    snapshot = memory_viz_snapshot(timeline_of(trace))
    (segment,) = snapshot["segments"]
    assert [(b["state"], b["size"]) for b in segment["blocks"]] == [
        ("inactive", 128),
        ("active_allocated", 64),
        ("inactive", 65536 - 192),
    ]
    assert segment["blocks"][1]["frames"] == [{"filename": "t", "line": 2, "name": "main.y float32[16]"}]
    assert (segment["allocated_size"], segment["requested_size"], segment["address"]) == (64, 64, BASE)
    (events,) = snapshot["device_traces"]
    assert [(e["action"], e["time_us"]) for e in events] == [
        ("segment_map", 1),
        ("alloc", 1),
        ("alloc", 3),
        ("free_requested", 8),
        ("free_completed", 8),
    ]

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from symalloc.pool.exports import perfetto_json
from symalloc.pool.replaying import timeline_of
from symalloc.pool.trace import Alloc, CallBegin, CallEnd, Free, Trace
from tests.pool.steps import STEPS, Step, as_trace, peak_live
from tests.pool.workloads import make_trace

NUMBER = {"type": "number", "minimum": 0}
INTEGER = {"type": "integer", "minimum": 0}


def _record(phase: str, **fields: object) -> dict[str, object]:
    return {
        "properties": {"ph": {"const": phase}, "name": {"type": "string"}, "pid": INTEGER, **fields},
        "required": sorted({"ph", "name", "pid", "args", *fields}),
    }


# what the Trace Event Format asks of metadata, counters and complete events
SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    _record("M", tid=INTEGER, args={"type": "object"}),
                    _record("C", ts=NUMBER, args={"type": "object", "additionalProperties": NUMBER}),
                    _record("X", ts=NUMBER, dur=NUMBER, tid=INTEGER, cat={"type": "string"}),
                ]
            },
        },
    },
}


def _document(trace: Trace) -> Any:
    document = json.loads(perfetto_json(timeline_of(trace)))
    records = document["traceEvents"]
    sample = [*records[:100], *records[:: max(len(records) // 100, 1)]]  # validating all takes seconds
    jsonschema.validate(document | {"traceEvents": sample}, SCHEMA)
    return document


def _records(document: Any, phase: str) -> list[Any]:
    return [e for e in document["traceEvents"] if e["ph"] == phase]


def _no_two_meet(slices: list[Any]) -> None:
    lanes = defaultdict(list)
    for each in slices:
        lanes[each["pid"], each["tid"]].append((each["ts"], each["ts"] + each["dur"]))
    for spans in lanes.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(spans))


@pytest.mark.parametrize("workload", ("mixed", "train"))
def test_a_whole_trace(workload: str) -> None:
    trace = make_trace(workload, 3)
    document = _document(trace)
    blocks = [e for e in _records(document, "X") if e["cat"] == "block"]
    assert len(blocks) == sum(isinstance(e, Alloc) for e in trace.events)
    assert len([e for e in _records(document, "X") if e["cat"] == "call"]) > 10
    assert max(c["args"]["live"] for c in _records(document, "C")) == peak_live(trace)
    _no_two_meet(_records(document, "X"))


@settings(max_examples=15)
@given(STEPS)
def test_slices_of_a_lane_do_not_meet(steps: list[Step]) -> None:
    trace = as_trace(steps)
    slices = _records(_document(trace), "X")
    _no_two_meet(slices)
    live = most = 0
    for event in trace.events:
        live += 1 if isinstance(event, Alloc) else -1
        most = max(most, live)
    assert len({s["tid"] for s in slices}) == most, "no more lanes than blocks are live at a time"


def test_slices_carry_what_is_known() -> None:
    trace = Trace(
        name="t",
        events=(
            CallBegin(call=7),
            Alloc(block=3, nbytes=100, call=7),
            CallEnd(call=7),
            Alloc(block=4, nbytes=8),
        ),
        times=(1000, 2000, 5000, 9000),
        tags={3: "main.weights float32[25]"},
    )
    call, first, second = _records(_document(trace), "X")
    assert (call["name"], call["ts"], call["dur"]) == ("call 7", 1.0, 4.0)
    assert (first["name"], first["ts"]) == ("main.weights float32[25]", 2.0)
    assert (first["args"]["bytes"], first["args"]["call"], first["args"]["freed"]) == (100, 7, False)
    assert second["name"] == "block 4"
    assert second["ts"] + second["dur"] == 10.0, "a block that is never freed lasts beyond the last event"


def test_nothing_at_all() -> None:
    assert _records(_document(Trace(name="empty", events=())), "X") == []
    assert _records(_document(Trace(name="one", events=(Alloc(block=1, nbytes=1), Free(block=1)))), "C")

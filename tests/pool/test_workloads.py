from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kv_concat import kv_concat_trace
from symalloc.pool.trace import Alloc, CallBegin, CallEnd, Free, read_trace, trace_as_json
from tests.pool.workloads import WORKLOADS, make_trace


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workloads_are_sound_traces_of_their_seed(workload: str, tmp_path: Path) -> None:
    trace = make_trace(workload, 7)
    path = tmp_path / "trace.json"
    path.write_bytes(trace_as_json(trace))
    assert read_trace(path) == trace, "the reader checks that nothing is freed twice"
    assert make_trace(workload, 7) == trace
    assert make_trace(workload, 8) != trace


@pytest.mark.parametrize("workload", WORKLOADS)
def test_only_what_is_marked_outlives_its_call(workload: str) -> None:
    trace = make_trace(workload, 3)
    home: dict[int, int] = {}
    running: set[int] = set()
    for event in trace.events:
        match event:
            case Alloc(block=block, call=call):
                assert not call or call in running
                home[block] = call
            case Free(block=block):
                assert block in trace.escape or home[block] in running
                del home[block]
            case CallBegin(call=call):
                running.add(call)
            case CallEnd(call=call):
                assert all(b in trace.escape for b, c in home.items() if c == call)
                running.remove(call)
    assert not running
    assert set(home) <= trace.escape


def test_concatenated_caches_grow_by_a_row_for_every_token() -> None:
    trace = kv_concat_trace()
    sizes = {e.block: e.nbytes for e in trace.events if isinstance(e, Alloc)}
    assert (len(trace.events), len(sizes), len(set(sizes.values()))) == (30_972, 14_973, 619)
    assert trace.peak_live == 59_207_680
    assert sum(isinstance(e, Free) for e in trace.events) == len(sizes)
    assert all(sizes[block] % 4096 == 0 for block in trace.escape)

"""Traces: written, recorded, read, replayed."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.pool_errors import PoolUsageError
from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.trace import (
    POLICIES,
    Alloc,
    CallBegin,
    CallEnd,
    Free,
    Trace,
    read_trace,
    replay,
    total,
    trace_as_json,
)
from tests.pool.steps import STEPS, Step, as_trace, peak_live
from tests.pool.workloads import WORKLOADS, make_trace
from tests.scale import part

GOOD = {
    "name": "small",
    "meta": {"seed": 1},
    "events": [[2, 1, 0], [1, 1, 100, 1], [1, 2, 64, 1], [0, 1, 0], [3, 1, 0], [0, 2, 0]],
}


def _file(folder: Path, document: object) -> Path:
    path = folder / "trace.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_trace_is_read(tmp_path: Path) -> None:
    assert read_trace(_file(tmp_path, GOOD)) == Trace(
        name="small",
        meta={"seed": 1},
        events=(
            CallBegin(call=1),
            Alloc(block=1, nbytes=100, call=1),
            Alloc(block=2, nbytes=64, call=1),
            Free(block=1),
            CallEnd(call=1),
            Free(block=2),
        ),
    )


def test_what_escapes_in_older_recordings_is_passed_over(tmp_path: Path) -> None:
    assert read_trace(_file(tmp_path, GOOD | {"escape": [2]})) == read_trace(_file(tmp_path, GOOD))


def test_a_trace_without_a_name_is_called_like_its_file(tmp_path: Path) -> None:
    assert read_trace(_file(tmp_path, {"events": []})).name == "trace"


@given(STEPS)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    trace = as_trace(steps)
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    path.write_bytes(trace_as_json(trace))
    assert read_trace(path) == trace


@pytest.mark.parametrize(
    ("events", "says"),
    (
        ([[4, 1, 0]], "Invalid value 4 - at `$.events[0][0]`"),
        ([[1, 1, 8, 0], [0, 2, 0]], "event 1 [0, 2, 0]: block 2 is freed but was never allocated"),
        ([[1, 1, 8, 0], [0, 1, 0], [0, 1, 0]], "event 2 [0, 1, 0]: block 1 is freed a second time"),
        ([[1, 1, 8, 0], [1, 1, 8, 0]], "allocated a second time"),
        ([[1, 1, 8, 0], [0, 1, 0], [1, 1, 8, 0]], "allocated a second time"),
        ([[1, 1, -8, 0]], "Expected `int` >= 0 - at `$.events[0][2]`"),
        ([[1, 1, 2**63, 0]], "Expected `int` <= 9223372036854775807 - at `$.events[0][2]`"),
        ([[1, 1]], "Expected `array` of at least length 3, got 2 - at `$.events[0]`; [1, id, size, call]"),
        ([[3, 1, 0]], "event 0 [3, 1, 0]: call 1 is ended but was never begun"),
        ([[2, 1, 0], [2, 1, 0]], "event 1 [2, 1, 0]: call 1 is begun a second time"),
    ),
)
def test_events_that_make_no_sense_are_named(tmp_path: Path, events: list[list[int]], says: str) -> None:
    with pytest.raises(PoolUsageError) as error:
        read_trace(_file(tmp_path, {"events": events}))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("document", "says"),
    (
        ("not json", "is not JSON"),
        (" \n", "it is empty"),
        ('{"events": [[1, 1, 8.5, 0]]}', "is no trace"),
        ('{"events": [], "times": [1]}', "there are 0 events, but 1 times"),
        ('{"events": [[2, 1], [3, 1]], "times": [5, 4]}', r"times\[1\], 4, is before times\[0\], 5"),
        ('{"events": [], "tags": {"x": 3}}', "is no trace"),
        (json.dumps(GOOD)[:-20], "cut off"),
        ({"name": "x"}, "missing required field `events`"),
        ({"events": [], "escapes": []}, "unknown field `escapes`"),
        ('{"meta": {"a": ' + "[" * 100_000, "nested too deeply"),
    ),
)
def test_files_that_are_no_traces_are_refused(tmp_path: Path, document: object, says: str) -> None:
    with pytest.raises(PoolUsageError, match=says):
        read_trace(_file(tmp_path, document))


def test_optional_fields_are_read(tmp_path: Path) -> None:
    trace = read_trace(
        _file(tmp_path, GOOD | {"times": [0, 10, 10, 30, 40, 50], "tags": {"weights": [1], "out": [2]}})
    )
    assert trace.times == (0, 10, 10, 30, 40, 50)
    assert trace.tags == {1: "weights", 2: "out"}


def test_what_is_written_without_them_has_only_the_fields_that_all_readers_know(tmp_path: Path) -> None:
    written = json.loads(trace_as_json(read_trace(_file(tmp_path, GOOD))))
    assert written == GOOD


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    plain, packed = _file(tmp_path, GOOD), tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(packed) == read_trace(plain)


@pytest.mark.parametrize("damage", (lambda d: d[:-9], lambda d: d[:2], lambda d: d[:12] + b"?" * 9 + d[21:]))
def test_a_compressed_file_that_is_damaged_is_said(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(damage(gzip.compress(json.dumps(GOOD).encode())))
    with pytest.raises(PoolUsageError, match="compressed by gzip, but damaged or cut off"):
        read_trace(packed)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"name": "\xff\xfe", "events": []}')
    with pytest.raises(PoolUsageError, match=r"trace\.json is n"):
        read_trace(path)


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(PoolUsageError, match="Is a directory"):
        read_trace(tmp_path)
    with pytest.raises(PoolUsageError, match=r"cannot read .*gone\.json: No such file"):
        read_trace(tmp_path / "gone.json")


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
    live: list[tuple[int, int]] = []
    with whole.record() as entire, bounded.record(most) as recent:
        for n in range(200):
            if live and dice.random() < 0.5:
                one, other = live.pop(dice.randrange(len(live)))
                whole.free(one)
                bounded.free(other)
            else:
                live.append((whole.alloc(n, tag=str(n)), bounded.alloc(n, tag=str(n))))
    bounded.alloc(1)  # which is not recorded
    everything, last = entire.trace, recent.trace
    assert entire.dropped == 0
    allocated = {e.block for e in everything.events[-most:] if isinstance(e, Alloc)}
    expected = [e for e in everything.events[-most:] if isinstance(e, Alloc | Free) and e.block in allocated]
    assert list(last.events) == expected
    assert last.meta == {"dropped": recent.dropped} == {"dropped": 200 - len(expected)}
    assert last.tags == {block: everything.tags[block] for block in allocated}
    path = tmp_path / "trace.json"
    path.write_bytes(trace_as_json(last))
    assert read_trace(path) == last


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
    results = [replay(make_trace(w, 11), "pool", PoolOptions(soft_limit=limit)) for w in part(WORKLOADS, 3)]
    assert all(r.ratio <= limit + Fraction(1, 50) for r in results), [r.ratio for r in results]
    assert total(results).mean <= limit


def test_the_pool_reserves_less_than_the_other() -> None:
    traces = [make_trace(w, 5) for w in part(("decode", "images-batched", "llm-batched", "mixed"), 2)]
    means = {p: total([replay(t, p, PoolOptions()) for t in traces]).mean for p in POLICIES}
    assert means.pop("pool") < min(means.values())


def test_the_mean_is_geometric() -> None:
    one = Trace(name="one", events=(Alloc(block=0, nbytes=1024),))  # 4096 reserved
    four = Trace(name="four", events=(Alloc(block=0, nbytes=4096),))
    summary = total([replay(t, "exact-size", PoolOptions()) for t in (one, four)])
    assert summary.mean == pytest.approx(2)
    assert summary.worst == 4

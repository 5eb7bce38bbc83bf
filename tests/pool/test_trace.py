from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given

from symalloc.pool.errors import PoolUsageError
from symalloc.pool.trace import Alloc, CallBegin, CallEnd, Free, Trace, read_trace, trace_as_json
from tests.pool.steps import STEPS, Step, as_trace

GOOD = {
    "name": "small",
    "meta": {"seed": 1},
    "escape": [2],
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
        escape=frozenset({2}),
        events=(
            CallBegin(call=1),
            Alloc(block=1, nbytes=100, call=1),
            Alloc(block=2, nbytes=64, call=1),
            Free(block=1),
            CallEnd(call=1),
            Free(block=2),
        ),
    )


def test_peak_live(tmp_path: Path) -> None:
    assert read_trace(_file(tmp_path, GOOD)).peak_live == 164


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
        ([[4, 1, 0]], "event 0 [4, 1, 0]: unknown kind 4"),
        ([[1, 1, 8, 0], [0, 2, 0]], "event 1 [0, 2, 0]: block 2 is freed but was never allocated"),
        ([[1, 1, 8, 0], [0, 1, 0], [0, 1, 0]], "event 2 [0, 1, 0]: block 1 is freed a second time"),
        ([[1, 1, 8, 0], [1, 1, 8, 0]], "allocated a second time"),
        ([[1, 1, 8, 0], [0, 1, 0], [1, 1, 8, 0]], "allocated a second time"),
        ([[1, 1, -8, 0]], "the size -8 is not in [0, 2^63)"),
        ([[1, 1, 2**63, 0]], "the size 9223372036854775808 is not in"),
        ([[1, 1]], "wrong number of fields"),
        ([[]], "event 0 []: empty"),
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
        (json.dumps(GOOD)[:-20], "cut off"),
        ("[]", "is no trace"),
        ({"name": "x"}, "missing required field `events`"),
        ({"events": [["1", 2, 3]]}, "is no trace"),
        ({"events": [], "escapes": []}, "unknown field `escapes`"),
        ('{"meta": {"a": ' + "[" * 100_000, "nested too deeply"),
    ),
)
def test_files_that_are_no_traces_are_refused(tmp_path: Path, document: object, says: str) -> None:
    with pytest.raises(PoolUsageError, match=says):
        read_trace(_file(tmp_path, document))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PoolUsageError, match=r"cannot read .*gone\.json: No such file"):
        read_trace(tmp_path / "gone.json")

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from symalloc.pool.trace import trace_as_json
from tests.pool.workloads import make_trace

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, workload in zip(files, ("images-batched", "mixed"), strict=True):
        file.write_bytes(trace_as_json(make_trace(workload, 2)))
    return files


def test_all_policies_are_shown(run: Run, traces: list[Path]) -> None:
    status, out, err = run("replay", *traces)
    assert (status, err) == (0, "")
    for text in ("images-batched: ", "mixed: ", "exact-size", "best-fit", "over 2 traces", "geometric"):
        assert text in out


def test_json(run: Run, traces: list[Path]) -> None:
    arguments = ("--soft-limit", "1.05", "--format", "json")
    status, out, _ = run("replay", *traces, *arguments)
    document = json.loads(out)
    assert status == 0
    assert [(r["trace"], r["policy"]) for r in document["results"]] == [
        (trace, policy)
        for trace in ("images-batched", "mixed")
        for policy in ("pool", "exact-size", "best-fit")
    ]
    ours, exact, _ = document["totals"]
    assert 1 <= ours["geometric_mean"] <= ours["worst"] <= 1.06 < exact["geometric_mean"]
    first = document["results"][0]
    assert first["ratio"] == pytest.approx(first["peak_reserved"] / first["peak_live"], abs=1e-6)
    assert first["commits"] > 0 < first["bytes_given_back"]


def test_a_hard_limit_that_is_too_low_is_said(run: Run, traces: list[Path]) -> None:
    status, out, _ = run("replay", traces[0], "--limit", "32MiB")
    assert status == 1
    assert "out of memory at event" in out
    assert "under the limit of 33554432" in out

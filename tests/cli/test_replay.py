from __future__ import annotations

import json
import pickle
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
    for text in ("images-batched: ", "mixed: ", "exact-size", "buddy", "over 2 traces", "geometric"):
        assert text in out


def test_json(run: Run, traces: list[Path]) -> None:
    arguments = ("--policy", "pool", "--policy", "buddy", "--soft-limit", "1.05", "--format", "json")
    status, out, _ = run("replay", *traces, *arguments)
    document = json.loads(out)
    assert status == 0
    assert [(r["trace"], r["policy"]) for r in document["results"]] == [
        (trace, policy) for trace in ("images-batched", "mixed") for policy in ("pool", "buddy")
    ]
    ours, buddy = document["totals"]
    assert 1 <= ours["geometric_mean"] <= ours["worst"] <= 1.06 < buddy["geometric_mean"]
    first = document["results"][0]
    assert first["ratio"] == pytest.approx(first["peak_reserved"] / first["peak_live"], abs=1e-6)
    assert first["commits"] > 0 < first["bytes_given_back"]


def test_a_hard_limit_that_is_too_low_is_said(run: Run, traces: list[Path]) -> None:
    status, out, _ = run("replay", traces[0], "--limit", "32MiB", "--policy", "pool")
    assert status == 1
    assert "out of memory at event" in out
    assert "under the limit of 33554432" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    (
        (("--policy", "worst-fit"), "no policy is called `worst-fit`"),
        (("--soft-limit", "0.9"), "a soft limit of 0.9"),
        (("--soft-limit", "lots"), "`lots` is no amount of memory"),
        (("--limit", "-3"), "`-3` is no amount of memory"),
        (("--page", "5000"), "power of two"),
    ),
)
def test_wrong_options_get_one_line(
    run: Run, traces: list[Path], arguments: tuple[str, ...], says: str
) -> None:
    status, out, err = run("replay", traces[0], *arguments)
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1 or err.endswith("\nTry `symalloc replay --help`.\n")


@pytest.mark.parametrize("text", (None, "", "no json", '{"events": [[1, 1, 8, 0], [0, 1, 0], [0, 1'))
def test_files_that_cannot_be_read_get_one_line(run: Run, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "trace.json"
    if text is not None:
        file.write_text(text)
    status, out, err = run("replay", file)
    assert (status, out) == (2, "")
    assert str(file) in err
    assert err.count("\n") == 1 or err.endswith("\nTry `symalloc replay --help`.\n")


def test_exports(run: Run, traces: list[Path], tmp_path: Path) -> None:
    files = {form: tmp_path / f"{form}.out" for form in ("perfetto", "memory-viz", "prometheus")}
    options = [option for form, file in files.items() for option in ("--export", f"{form}={file}")]
    status, out, err = run("replay", traces[0], "--policy", "pool", *options)
    assert (status, err) == (0, "")
    assert "images-batched: " in out
    assert json.loads(files["perfetto"].read_bytes())["traceEvents"]
    snapshot = pickle.loads(files["memory-viz"].read_bytes())
    assert snapshot["device_traces"][0][-1]["action"] == "free_completed"
    assert 'symalloc_pool_reserved_bytes{pool="images-batched"}' in files["prometheus"].read_text()


@pytest.mark.parametrize(
    ("export", "says"),
    (
        ("flamegraph=x", "there is no export `flamegraph`; there are perfetto, memory-viz, prometheus"),
        ("perfetto", "write FORM=FILE"),
        ("perfetto=", "write FORM=FILE"),
        ("perfetto=missing/folder/x.json", "cannot write missing/folder/x.json"),
    ),
)
def test_exports_that_cannot_be(run: Run, traces: list[Path], export: str, says: str) -> None:
    status, out, err = run("replay", traces[0], "--policy", "pool", "--export", export)
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1 or err.endswith("\nTry `symalloc replay --help`.\n")


def test_an_export_takes_one_trace(run: Run, traces: list[Path]) -> None:
    status, _, err = run("replay", *traces, "--export", "perfetto=x")
    assert (status, err.count("\n")) == (2, 1)
    assert "--export takes one trace, not 2" in err

"""symalloc report and symalloc replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from symalloc.pool.trace import trace_as_json
from tests.conftest import Run
from tests.modules import CHAIN
from tests.pool.workloads import make_trace

pytestmark = pytest.mark.usefixtures("warm_workers")

MODULE = f"""{CHAIN}
    @T.prim_func(private=True)
    def half(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(8):
            y[i] = x[i]

    @R.function
    def other(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        c = R.call_tir(Module.half, (x,), out_ty=R.Tensor((16,), "float32"))
        return R.add(c, x)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "model.py"
    file.write_text(MODULE)
    return file


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, workload in zip(files, ("images-batched", "mixed"), strict=True):
        file.write_bytes(trace_as_json(make_trace(workload, 2)))
    return files


def _data(page: Path) -> dict[str, object]:
    text = page.read_text().partition('<script type="application/json" id="data">')[2]
    found: dict[str, object] = json.loads(text.partition("</script>")[0])
    return found


def test_a_page_of_a_module_holds_every_function_tvms_plan_and_findings(
    run: Run, module: Path, tmp_path: Path
) -> None:
    page = tmp_path / "map.html"
    said = f"wrote {page}: the memory of 2 functions, 1 error found\n"
    assert run("report", str(module), "-o", str(page)) == (1, "", said)  # `other` reads what is not written
    data = _data(page)
    functions = data["functions"]
    assert isinstance(functions, list)
    assert (data["kind"], data["title"]) == ("plan", "model.py")
    (finding,) = data["findings"]  # type: ignore[misc]
    assert (finding["rule"], finding["function"]) == ("SYM208", "other")
    other = next(f for f in functions if f["function"] == "other")
    assert any(f"`{b['name']}`" in finding["message"] for arena in other["arenas"] for b in arena["buffers"])
    assert {f["function"] for f in functions} == {"main", "other"}
    assert all(
        f["calls"][who] is not None for f in functions for who in ("ours", "unplanned", "tvm_unbounded")
    )


def test_a_trace_is_drawn(run: Run, traces: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    assert run("report", traces[1], "-o", str(page)) == (0, "", f"wrote {page}: the trace as a page\n")
    data = _data(page)
    assert data["kind"] == "trace"
    assert data["all_blocks"] == len(data["blocks"])  # type: ignore[arg-type]


def test_a_trace_ends_where_an_allocation_does_not_fit(run: Run, traces: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    assert run("report", traces[1], "-o", str(page), "--limit", "4MiB", "-q") == (1, "", "")
    assert "4194304" in str(_data(page)["failed"])


def test_both_policies_are_shown(run: Run, traces: list[Path]) -> None:
    status, out, err = run("replay", *traces)
    assert (status, err) == (0, "")
    for text in ("images-batched: ", "mixed: ", "exact-size", "over 2 traces", "geometric"):
        assert text in out


def test_json(run: Run, traces: list[Path]) -> None:
    arguments = ("--soft-limit", "1.05", "--format", "json")
    status, out, _ = run("replay", *traces, *arguments)
    document = json.loads(out)
    assert status == 0
    assert [(r["trace"], r["policy"]) for r in document["results"]] == [
        (trace, policy) for trace in ("images-batched", "mixed") for policy in ("pool", "exact-size")
    ]
    ours, exact = document["totals"]
    assert 1 <= ours["geometric_mean"] <= ours["worst"] <= 1.06 < exact["geometric_mean"]
    first = document["results"][0]
    assert first["ratio"] == pytest.approx(first["peak_reserved"] / first["peak_live"], abs=1e-6)
    assert first["commits"] > 0 < first["bytes_given_back"]


def test_a_hard_limit_that_is_too_low_is_said(run: Run, traces: list[Path]) -> None:
    status, out, _ = run("replay", traces[0], "--limit", "32MiB")
    assert status == 1
    assert "out of memory at event" in out
    assert "under the limit of 33554432" in out

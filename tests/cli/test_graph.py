"""symalloc graph: the dependency graph as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import symalloc
from symalloc.errors import SymallocError
from symalloc.report.document import as_json
from symalloc.report.plan_json import plans_as_json
from tests.cli.documents import read_as
from tests.conftest import Run

pytestmark = pytest.mark.usefixtures("warm_workers")

MODULE = """
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        a = R.exp(x)
        b = R.tanh(a)
        c = R.sigmoid(b)
        d = R.sin(x)
        e = R.cos(d)
        return R.add(c, e)
"""


@pytest.mark.parametrize("order", ["total", "dag"])
def test_the_edges_of_two_branches(run: Run, tmp_path: Path, order: str) -> None:
    model = tmp_path / "model.py"
    model.write_text(MODULE)
    status, out, _ = run("graph", model, "--order", order)
    (found,) = read_as("graph", out)["functions"]
    edges: list[dict[str, Any]] = found["edges"]
    data = {(e["source"], e["target"]) for e in edges if e["kind"] == "data"}
    fences = [e for e in edges if e["kind"] == "fence"]
    assert (status, found["function"], found["order"]) == (0, "main", order)
    assert data == {(0, 1), (1, 2), (3, 4), (2, 5), (4, 5)}
    assert bool(fences) == (order == "total")
    assert found["nodes"][0]["inputs"] == ["x"]
    assert found["topological"] == [0, 1, 2, 3, 4, 5]
    assert (found["order_cost"] is None) == (order == "total")
    assert [node["live"] for node in found["nodes"]] == [[n, n + 1] for n in range(6)]
    document = symalloc.graph(model, order=order)
    assert json.loads(as_json(document)) == json.loads(out)
    planned = symalloc.plan(model, order=order)
    (plan,) = json.loads(plans_as_json(planned.report.reports))["functions"]
    assert plan["graph"] == found
    told = [line for line in str(planned).splitlines() if "waits for call" in line]
    assert len(told) == len(fences)


def test_lanes_take_less_time_and_more_memory(run: Run, tmp_path: Path) -> None:
    model, times = tmp_path / "model.py", tmp_path / "times.json"
    model.write_text(MODULE)
    assert run("run", str(model), "--bind", "n=16", "--profile", str(times))[0] == 0
    measured = json.loads(times.read_text())
    assert measured["binding"] == {"n": 16}
    assert {"tir_exp", "add"} <= measured["kernels"].keys()
    measured["kernels"] = dict.fromkeys(measured["kernels"], 1.0)
    times.write_text(json.dumps(measured))
    status, out, _ = run("graph", str(model), "--times", str(times), "--budget", "1536")
    (found,) = json.loads(out)["functions"]
    rows = [(row["lanes"], row["seconds"], row["bytes"], row["fits"]) for row in found["lanes"]]
    # 512 B a tensor: one lane holds three at its fullest moment, two lanes two of each branch
    assert (status, rows[:2]) == (0, [(1, 6.0, 1536, True), (2, 4.0, 2048, False)])
    assert found["lanes"][1]["fenced"] > 4.0
    document = symalloc.graph(model, times=measured, bind={"n": 16}, budget="1536B")
    assert json.loads(as_json(document)) == json.loads(out)
    status, out, _ = run("graph", str(model), "--times", str(times), "--budget", "64", "--format", "text")
    assert status == 1 and "0 lanes within the budget" in out


def test_times_that_make_no_sense_are_told(run: Run, tmp_path: Path) -> None:
    model, times = tmp_path / "model.py", tmp_path / "times.json"
    model.write_text(MODULE)
    for text, problem in (
        ("[]", "no times of kernels"),
        ('{"kernels": {"add": -1}}', "no times of kernels"),
        ('{"kernels": {"add": 1e308}}', "no times of kernels"),
        ('{"kernels": {"add": 1}, "binding": {"n": 4}}', "no time is given for"),
        ('{"kernels": {"add": 1}, "binding": {"n": -4}}', "`n` is an extent of a tensor and cannot be -4"),
        (
            '{"kernels": {"add": 1}, "binding": {"n": 4, "q": 4}}',
            "`q` is no symbol of the module's functions",
        ),
    ):
        times.write_text(text)
        status, out, err = run("graph", str(model), "--times", str(times))
        assert (status, out) == (2, "") and problem in err
        with pytest.raises(SymallocError, match=problem):
            symalloc.graph(str(model), times=str(times))
    status, _, err = run("graph", str(model), "--budget", "1MiB")
    assert status == 2 and "--times" in err

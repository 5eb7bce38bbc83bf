"""`benchmarks.plan_device` on a target that every machine has a device of, and what it says of faults."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.plan_device import LOCK, examine, failures, line, main
from tests.models.measure import compiler
from tests.models.planned import within_limit


@pytest.mark.skipif(compiler() is None, reason="the counting allocator needs a C++ compiler")
def test_a_model_is_compared_on_the_device_of_its_target(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCK, str(tmp_path / "lock"))
    row = examine("torch_op_cond", "llvm", 1)
    assert len(row["calls"]) == 5
    assert all(c["difference"] is None and c["close"] for c in row["calls"])
    assert all(c["floor"] <= c["ours"] <= within_limit(c["unplanned"]) for c in row["calls"])
    assert set(row["time"]) == {"unplanned", "ours", "tvm without bounds"}
    assert row["graphs"] is None
    assert list(failures(row)) == []


def test_other_bits_and_problems_are_failures() -> None:
    call = {"binding": {"n": 1}, "path": {}, "TVM's difference": None, "close": True}
    call |= {"ours": 64, "unplanned": 64, "TVM": None, "floor": 64, "difference": "tensor 0 differs"}
    row = {
        "model": "m",
        "calls": [call],
        "time": {"problem": "no kernel"},
        "graphs": {"calls": 1, "wrong": {"ours": 1}, "kernels": {"ours": 1}, "seconds": {"ours": 1.0}},
    }
    assert list(failures(row)) == [
        "m: time: no kernel",
        "m at {'n': 1} {}: tensor 0 differs",
        "m: 1 calls with CUDA graphs have other bits",
    ]
    assert "1/0" in line(row)


def test_a_device_that_is_not_there_is_refused() -> None:
    done = CliRunner().invoke(main, ["torch_gru", "--target", "metal"])
    assert done.exit_code == 2
    assert "no device of metal" in done.output

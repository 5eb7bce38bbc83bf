"""--alias of `symalloc plan` and `symalloc run`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., tuple[int, str, str]]

MODULE = """
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Step:
    @R.function
    def main(w: R.Tensor(("n", 8), "float32"), g: R.Tensor(("n", 8), "float32")) -> R.Tensor:
        n = T.int64()
        scaled = R.multiply(g, R.const(0.1, "float32"))
        updated = R.subtract(w, scaled)
        return updated
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "step.py"
    path.write_text(MODULE)
    return str(path)


def test_a_plan_with_a_donated_input(run: Command, file: str, tmp_path: Path) -> None:
    output = tmp_path / "planned.json"
    status, out, _ = run("plan", file, "--alias", "updated=w", "-o", str(output))
    assert status == 0 and output.exists()
    assert out.startswith("main: 1 of 2 tensors planned, 1 in donated inputs\n")
    assert "  result in the donated input `w`: `result`, 32*n B\n" in out
    assert "  donated results " in out and "\n  results  " not in out


def test_the_plan_as_json(run: Command, file: str) -> None:
    _, out, _ = run("plan", file, "--alias", "result=w", "--format", "json", "--sample", "n=10")
    (function,) = json.loads(out)["functions"]
    assert function["carried"] == [{"output": "result", "input": "w", "bytes": "32*n", "room": "32*n"}]
    assert function["returned"] == []
    assert [(s["carried"], s["returned"]) for s in function["samples"]] == [(320, 0)]


def test_a_run(run: Command, file: str) -> None:
    status, out, _ = run("run", file, "--alias", "updated=w", "--bind", "n=5", "--check")
    assert status == 0 and "the same as the unplanned module, bit for bit" in out


@pytest.mark.parametrize(
    ("alias", "message"),
    [
        ("updated", "'updated' is no alias; write OUTPUT=INPUT"),
        ("updated=v", "there is no input `v`; the inputs are `w`, `g`"),
        ("other=w", "there is no output `other`; the outputs are `result` or `updated`"),
        ("step:updated=w", "there is no public function `step`"),
    ],
)
def test_what_is_refused(run: Command, file: str, alias: str, message: str) -> None:
    for command in (("plan", file), ("run", file, "--bind", "n=5")):
        status, out, err = run(*command, "--alias", alias)
        assert (status, out) == (2, "")
        assert message in err and "Traceback" not in err

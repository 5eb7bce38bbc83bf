"""symalloc graph: the dependency graph as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("warm_workers")

Run = Callable[..., tuple[int, str, str]]
MODULE = """
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
            c = R.sigmoid(b)
            d = R.sin(x)
            e = R.cos(d)
            f = R.add(c, e)
            R.output(f)
        return f
"""


@pytest.mark.parametrize("order", ["total", "dag"])
def test_the_edges_of_two_branches(run: Run, tmp_path: Path, order: str) -> None:
    (tmp_path / "model.py").write_text(MODULE)
    status, out, _ = run("graph", str(tmp_path / "model.py"), "--order", order)
    (found,) = json.loads(out)["functions"]
    edges: list[dict[str, Any]] = found["edges"]
    data = {(e["source"], e["target"]) for e in edges if e["kind"] == "data"}
    fences = [e for e in edges if e["kind"] == "fence"]
    assert (status, found["function"], found["order"]) == (0, "main", order)
    assert data == {(0, 1), (1, 2), (3, 4), (2, 5), (4, 5)}
    assert bool(fences) == (order == "total")
    assert found["nodes"][0]["inputs"] == ["x"]
    assert found["topological"] == [0, 1, 2, 3, 4, 5]
    assert (found["order_cost"] is None) == (order == "total")


def test_bad_input_is_told(run: Run, tmp_path: Path) -> None:
    for arguments in ([str(tmp_path / "none.py")], [str(tmp_path / "none.py"), "--order", "some"]):
        status, out, err = run("graph", *arguments)
        assert (status, out) == (2, "")
        assert err.startswith("error: ")

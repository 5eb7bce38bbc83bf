"""Models of torch from files: linted, planned and run by the command line, and close to what torch computes.

They need the extra, and minutes: `make torch` runs them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.cli.main import main
from symalloc.relax.passes.pipeline import finishing_pipeline

torch = pytest.importorskip("torch", reason="torch is not installed (the extra `torch`)")

from tests.models.torch_files import TORCH_FILES, TorchFile  # noqa: E402

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.usefixtures("warm_workers"),
]
Run = Callable[..., tuple[int, Any]]


def _saved(name: str, file: Path) -> TorchFile:
    """The network, which is written to `file`."""
    torch.manual_seed(0)
    model = TORCH_FILES[name]()
    model.net.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model.net, model.draw(*model.sizes[-1]), dynamic_shapes=model.dims)
        symalloc.save_program(program, file)
    return model


def _bindings(model: TorchFile) -> list[dict[str, int]]:
    """The sizes to run a network at, by the names of its dimensions."""
    names = [dim.__name__ for dims in model.dims for dim in (dims or {}).values()]
    return [dict(zip(names, sizes, strict=True)) for sizes in model.sizes]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--format", "json"])
        out, err = capsys.readouterr()
        assert err == ""
        return int(ended.value.code or 0), json.loads(out)

    return call


@pytest.mark.parametrize("name", TORCH_FILES)
def test_the_command_line_takes_the_file(name: str, tmp_path: Path, run: Run) -> None:
    file = tmp_path / f"{name}.pt2"
    model = _saved(name, file)
    status, report = run("lint", file)
    assert status == 0 and {d["severity"] for d in report["diagnostics"]} == {"note"}
    # bounds that torch declares, nothing enforces, and TVM's own plan relies on
    status, report = run("lint", file, "--stage", "planned")
    assert status == 1 and {d["rule"] for d in report["diagnostics"] if d["severity"] != "note"} == {"SYM401"}
    status, plan = run("plan", file)
    buffers = [b for arena in plan["functions"][0]["arenas"] for b in arena["buffers"]]
    assert status == 0 and buffers
    # nn.Sequential has no code of its own: its layers were traced in torch
    code = "torch/nn/modules/" if name == "mlp" else "tests/models/torch_files.py:"
    assert all(code in (b["source"] or "") for b in buffers)
    for binding in _bindings(model):
        given = [part for symbol, size in binding.items() for part in ("--bind", f"{symbol}={size}")]
        status, ran = run("run", file, "--check", *given)
        assert status == 0, ran


@pytest.mark.parametrize("pipeline", ("default", "target"))
@pytest.mark.parametrize("name", TORCH_FILES)
def test_a_planned_model_gives_what_torch_gives(name: str, pipeline: Any, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.pt2"
    model = _saved(name, file)
    planned = symalloc.plan(file, pipeline=pipeline)
    finishing = finishing_pipeline("llvm", pipeline=pipeline)
    machine = relax.VirtualMachine(relax.build(planned.module, "llvm", relax_pipeline=finishing), tvm.cpu())
    for sizes in model.sizes:
        inputs = model.draw(*sizes)
        given = [tvm.runtime.tensor(each.numpy()) for each in inputs]
        ours = [each.numpy() for each in machine["main"](*given)]
        theirs = model.net(*inputs)
        theirs = theirs if isinstance(theirs, tuple) else (theirs,)
        for left, right in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(left, right.detach().numpy(), rtol=1e-3, atol=1e-5)

"""Models of other frameworks, functions and standard input, through every verb."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import symalloc
from symalloc.relax.files.load import load_one
from tests.conftest import Run

pytestmark = pytest.mark.usefixtures("warm_workers")


FUNCTIONS = """\
import os
import sys

def make():
    import onnx
    return onnx.load(os.path.join(os.path.dirname(__file__), "m.onnx"))

def dies():
    os.kill(os.getpid(), 11)

def fails():
    raise ValueError("no weights")
"""


def embedding() -> onnx.ModelProto:
    """Rows of a table by tokens, and a projection; over the batch and the length."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["rows"], name="lookup"),
        helper.make_node("MatMul", ["rows", "w"], ["hidden"], name="up"),
        helper.make_node("Relu", ["hidden"], ["act"], name="act"),
        helper.make_node("MatMul", ["act", "v"], ["y"], name="down"),
    ]
    source = np.random.default_rng(0)
    shapes = {"table": (50, 8), "w": (8, 32), "v": (32, 8)}
    weights = [
        numpy_helper.from_array(source.standard_normal(shape, dtype=np.float32), name)
        for name, shape in shapes.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch size", "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch size", "n", 8])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(embedding(), "m.onnx")
    Path("model.py").write_text(FUNCTIONS)
    return tmp_path


def test_a_model_of_onnx_goes_through_the_verbs(run: Run) -> None:
    status, out, err = run("lint", "m.onnx", "--assume", "batch_size <= 8")
    assert (status, err) == (0, "") and " 0 unknown." in out
    status, out, err = run("plan", "m.onnx", "-o", "planned.json", "-q")
    assert (status, err) == (0, "") and "128*batch_size*n B" in out
    status, out, err = run("run", "m.onnx", "--bind", "batch_size=3", "--bind", "n=5", "--check")
    assert (status, err) == (0, "")
    assert "main(batch_size = 3, n = 5) returns float32[3, 5, 8]" in out
    assert "the same as the unplanned module, bit for bit" in out


def test_the_plan_of_a_model_with_weights_is_written_as_script(run: Run) -> None:
    status, _, err = run("plan", "m.onnx", "-o", "planned.py", "-q")
    assert (status, err) == (0, "")
    status, out, _ = run("run", "planned.py", "--bind", "batch_size=3", "--bind", "n=5")
    assert status == 0 and "main(batch_size = 3, n = 5) returns float32[3, 5, 8]" in out


def test_standard_input_may_hold_any_kind(run: Run) -> None:
    data = Path("m.onnx").read_bytes()
    status, out, err = run("plan", "-", stdin=data)
    assert (status, err) == (0, "") and "128*batch_size*n B" in out
    status, out, err = run("lint", "-", "m.onnx", "--format", "json", stdin=data)
    assert (status, err) == (0, "") and json.loads(out)["summary"]["functions"] == 2
    script = Path(__file__).parents[2] / "examples" / "issue_17322.py"
    status, out, err = run("lint", "-", stdin=script.read_bytes())
    assert (status, err) == (1, "") and "--> <stdin>:18:17" in out


def test_an_empty_or_binary_standard_input_is_said(run: Run) -> None:
    for verb, stdin in (("lint", b""), ("plan", b" \n")):
        assert run(verb, "-", stdin=stdin) == (2, "", "error: standard input is empty\n")
    status, out, _ = run("lint", "-", stdin=b"\x89PNG\x00\x01")
    assert status == 2 and "it is binary, but neither an ONNX model nor" in out


def test_a_function_is_called_with_trust(run: Run) -> None:
    status, out, err = run("plan", "model.py:make", "--trust")
    assert (status, err) == (0, "") and "128*batch_size*n B" in out
    for verb in ("lint", "plan"):
        status, out, err = run(verb, "model.py:make")
        assert (status, out) == (2, "")
        assert err.startswith("error: model.py:make runs the code of model.py; add --trust")


def test_a_function_that_fails_costs_one_finding(run: Run) -> None:
    status, out, err = run("lint", "model.py:fails", "model.py:dies", "m.onnx", "--trust")
    assert (status, err) == (2, "") and out.count("SYM902") == 2
    assert "cannot be read: fails() failed: ValueError: no weights\n  --> model.py:12:1" in out
    assert "crashed (SIGSEGV) while reading" in out
    status, _, err = run("plan", "model.py:fails", "--trust")
    assert (status, err) == (
        2,
        "error: model.py:12:1 cannot be read: fails() failed: ValueError: no weights\n",
    )


def test_what_cannot_be_imported_is_a_finding_or_an_error(run: Run) -> None:
    made = embedding()
    made.graph.node[2].op_type = "Det"
    onnx.save(made, "m.onnx")
    said = "cannot be imported: TVM's ONNX importer does not know operator Det (node `act`)"
    status, out, _ = run("lint", "m.onnx")
    assert status == 2 and out.startswith(f"error[SYM902]: {said}\n --> m.onnx\n")
    assert run("plan", "m.onnx") == (2, "", f"error: m.onnx {said}\n")
    (finding,) = symalloc.lint(made)
    assert finding.rule == "SYM902" and finding.message == said
    with pytest.raises(symalloc.SymallocError, match="the model cannot be imported"):
        symalloc.plan(made)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("symalloc.relax.read.importing.find_spec", lambda name: None)
    with pytest.raises(symalloc.SymallocError, match=r"^reading m.onnx needs onnx: pip install"):
        load_one(Path("m.onnx"))


def test_python_takes_models_and_paths() -> None:
    (of_model, of_path) = (symalloc.lint([embedding(), "m.onnx"]), symalloc.lint(Path("m.onnx")))
    assert of_model.ok and of_path.ok and of_model.summary.functions == 2 * of_path.summary.functions
    sizes = {str(symalloc.plan(model).plans["main"].arenas) for model in (embedding(), "m.onnx")}
    assert len(sizes) == 1
    result = symalloc.run("m.onnx", {"batch_size": 2, "n": 3}, check=True)
    assert result.checked and result.difference is None and result.outputs[0].shape == (2, 3, 8)

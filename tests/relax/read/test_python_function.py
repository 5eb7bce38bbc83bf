"""Models that functions of Python files make; and what such functions do instead."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tvm

from symalloc.program.reading import UnreadableError
from symalloc.relax.read.find_files import ModelFunction
from symalloc.relax.read.open_model import load_function

MODEL = """\
import sys
import helper_of_the_model
from tvm import relax
from tvm.relax.frontend import nn

class Net(nn.Module):
    def __init__(self):
        self.up = nn.Linear(16, 32)
    def forward(self, x: nn.Tensor):
        return nn.op.relu(self.up(x))

def pair():
    print("it prints")
    return Net(), {"forward": {"x": nn.spec.Tensor(["batch", 16], "float32")}}

def module(width=16):
    net, spec = pair()
    return net.export_tvm(spec)[0]

made = module()

def nothing(): pass
def number(): return helper_of_the_model.NUMBER
def wrong_spec(): return Net(), {"forwards": {}}
def raises(): raise ValueError("no weights here")
def stops(): sys.exit(3)
def takes(path, *, size): pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "helper_of_the_model.py").write_text("NUMBER = 3\n")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path / "model.py"


@pytest.mark.parametrize("name", ["pair", "module", "made"])
def test_a_function_gives_a_module(file: Path, name: str) -> None:
    mod = load_function(ModelFunction(file, name), trust=True)
    assert isinstance(mod, tvm.IRModule)
    x, *weights = mod["forward"].params
    assert str(x.ty.shape.values[0]) == "batch" and [w.name for w in weights] == ["up.weight", "up.bias"]


def test_it_leaves_no_trace_in_the_process(file: Path) -> None:
    before, path = set(sys.modules), list(sys.path)
    load_function(ModelFunction(file, "module"), trust=True)
    assert sys.path == path and "helper_of_the_model" not in set(sys.modules) - before
    assert not any("symalloc_model" in name for name in sys.modules)


@pytest.mark.parametrize(
    ("name", "said", "line"),
    [
        ("missing", r"model\.py defines no `missing`; it defines Net, pair, module,", None),
        ("nothing", r"nothing\(\) returned None; it must return an IRModule, an onnx", None),
        ("number", r"number\(\) returned an object of type int", None),
        ("wrong_spec", r"Net\.export_tvm: .*forwards", None),
        ("raises", r"raises\(\) failed: ValueError: no weights here", 25),
        ("stops", r"stops\(\) failed: it called sys.exit\(3\)", 26),
        ("takes", r"takes\(\) takes path, size, and is called without arguments", None),
        ("sys", r"sys is neither a function nor an IRModule", None),
    ],
)
def test_what_a_function_does_instead_is_said(file: Path, name: str, said: str, line: int | None) -> None:
    with pytest.raises(UnreadableError, match=said) as caught:
        load_function(ModelFunction(file, name), trust=True)
    assert (caught.value.span.line if caught.value.span else None) == line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nimport no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f(:\n", r"syntax error: .* \(line 1\)"),
    ],
)
def test_a_file_that_cannot_be_imported_is_said(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(UnreadableError, match=f"importing .*model.py failed: {said}"):
        load_function(ModelFunction(file, "f"), trust=True)


def test_nothing_runs_without_trust(file: Path) -> None:
    with pytest.raises(UnreadableError, match=r"calling it runs the code of .*model.py"):
        load_function(ModelFunction(file, "stops"), trust=False)
